package informers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// contradiction is a bench on which the bus and the informer disagree about testKey.
type contradiction struct {
	*bench
	now   time.Time
	asked int
	acked event.Acked
	o     *unstructured.Unstructured
	err   error
}

func contradicted(t *testing.T, live *event.Object, acked event.Acked) *contradiction {
	c := &contradiction{acked: acked, now: time.Unix(1000, 0)}
	c.acked.Position = 8
	c.bench = newBench(t, Config{Dynamic: stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		c.asked++
		return c.o, c.err
	}}}, testResource)
	c.config.Now = func() time.Time { return c.now }
	c.sync()
	c.index(live)
	return c
}

// rounds runs the lookups and comparisons of an idle forwarder after each of n resyncs. It reports
// whether the object is known to have outlived the delete.
func (c *contradiction) rounds(t *testing.T, n int) bool {
	t.Helper()
	for range n {
		switch v := c.Lookup(testKey); {
		case v.Live == nil:
		case v.Outlived.Position == c.acked.Position:
			return true
		default:
			_, _ = c.Confirm(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: c.acked}))
		}
	}
	return false
}

func stored(uid, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetName("web")
	u.SetUID(object(uid, version).UID)
	u.SetResourceVersion(version)
	return u
}

// TestADeleteInTheVersionThatExists verifies that an object that outlived a delete in its own
// version is published again after one read. In an earlier version, subscribers never saw the
// object again, and every comparison requested another one.
func TestADeleteInTheVersionThatExists(t *testing.T) {
	c := contradicted(t, object("A", "5"), deleted("A", "5"))
	c.o = stored("A", "5")
	if !c.rounds(t, 3) {
		t.Fatal("the object does not count as outlived")
	}
	if c.asked != 1 {
		t.Errorf("the API server was asked %d times, want once", c.asked)
	}
	if keys := c.takeEnqueued(); len(keys) != 1 {
		t.Errorf("enqueued %v, want the key once", keys)
	}

	// The publish fails, and the object still counts as outlived.
	c.Settle(testKey, c.acked)
	if !c.rounds(t, 1) || c.asked != 1 {
		t.Errorf("%d reads after a failed publish, want 1", c.asked)
	}

	// The object is published, and then someone forges another delete in the same version.
	c.Acknowledged(testKey, live("A", "5"), object("A", "5"))
	if n := c.ledger.DirtyLen(); n != 0 {
		t.Errorf("%d keys are dirty after it was published", n)
	}
	c.acked.Position = 10
	if !c.rounds(t, 3) || c.asked != 2 {
		t.Errorf("%d reads, want a second read that confirms that the object exists", c.asked)
	}
}

// TestWhatOutlivedADeleteIsDeleted verifies that the outlived mark of an object is dropped when the
// object is deleted.
func TestWhatOutlivedADeleteIsDeleted(t *testing.T) {
	c := contradicted(t, object("A", "5"), deleted("A", "5"))
	c.o = stored("A", "5")
	if !c.rounds(t, 3) {
		t.Fatal("the object does not count as outlived")
	}
	c.delete(object("A", "5"))
	if c.rounds(t, 3) || c.asked != 1 {
		t.Errorf("the deleted object still counts as outlived, or was read again: %d reads, want 1", c.asked)
	}
	c.Settle(testKey, c.acked)
	if n := c.ledger.DirtyLen(); n != 0 {
		t.Errorf("%d keys are dirty", n)
	}
}

// TestADeselectionOfAnotherUIDInTheVersionThatExists verifies that a deselected event of another
// UID in the live version requires only one read. An aggregated API server can count versions per
// object, so versions are not unique. In an earlier version, such a key was compared and enqueued
// forever.
func TestADeselectionOfAnotherUIDInTheVersionThatExists(t *testing.T) {
	left := deleted("A", "5")
	left.Deselected = true
	c := contradicted(t, object("B", "5"), left)
	c.o = stored("B", "5")
	if !c.rounds(t, 3) {
		t.Fatal("the object does not count as outlived")
	}
	if c.asked != 1 {
		t.Errorf("the API server was asked %d times, want once", c.asked)
	}
}
