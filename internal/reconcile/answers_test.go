package reconcile

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// contradiction is a bench on which the bus and the informer disagree about testKey.
type contradiction struct {
	*bench
	asked   int
	acked   event.Acked
	o       *unstructured.Unstructured
	err     error
	version string // the current version in a list
}

func contradicted(t *testing.T, live *event.Object, acked event.Acked) *contradiction {
	c := &contradiction{acked: acked}
	c.acked.Position = 8
	c.bench = newBench(t, stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		c.asked++
		return c.o, c.err
	}, list: func(schema.GroupVersionResource, string, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		list := &unstructured.UnstructuredList{}
		list.SetResourceVersion(c.version)
		return list, nil
	}})
	c.object.Live = live
	return c
}

func (c *contradiction) confirm(t *testing.T) (Comparison, error) {
	t.Helper()
	return c.Confirm(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: c.acked}))
}

// rounds runs n comparisons, as an idle forwarder does after each resync.
func (c *contradiction) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		_, _ = c.confirm(t)
	}
}

// TestTheAnswerIsRemembered verifies that repeated comparisons of a key, for example after each
// resync, do not read its object each time. If the watch is behind, another read cannot help.
func TestTheAnswerIsRemembered(t *testing.T) {
	for name, c := range map[string]struct {
		live, acked string // versions; the bus has a delete
		o           *unstructured.Unstructured
		err         error
	}{
		"gone, in the same version":         {live: "5", acked: "5", err: notFound()},
		"gone, in a later version":          {live: "5", acked: "6", err: notFound()},
		"changed since":                     {live: "5", acked: "5", o: stored("A", "7")},
		"changed since, in a later version": {live: "5", acked: "6", o: stored("A", "7")},
		"there, and the watch behind":       {live: "5", acked: "6", o: stored("A", "6")},
		"its name is another's":             {live: "5", acked: "5", o: stored("B", "9")},
	} {
		t.Run(name, func(t *testing.T) {
			b := contradicted(t, object("A", c.live), deleted("A", c.acked))
			b.o, b.err = c.o, c.err
			b.rounds(t, 100)
			if len(b.enqueued) != 0 || b.asked != 1 {
				t.Errorf("%d reads, enqueued %v; want one read and no key", b.asked, b.enqueued)
			}
			for range 20 {
				b.now = b.now.Add(longestPause)
				b.rounds(t, 1)
			}
			if b.asked != 21 {
				t.Errorf("%d reads, each after the longest pause; want 21", b.asked)
			}
			b.now = b.now.Add(longestPause - time.Second)
			b.rounds(t, 1)
			if b.asked != 21 {
				t.Error("read again before the longest pause was over")
			}
			b.object.Live = object("A", "8") // both the informer and the bus have a new state
			b.acked.ResourceVersion = "8"
			b.rounds(t, 1)
			if b.asked != 22 {
				t.Errorf("%d reads, want 22: a change is another question", b.asked)
			}
		})
	}
}

// TestAReadThatFailsIsNoAnswer verifies that a failed read returns an error and is repeated by the
// next comparison.
func TestAReadThatFailsIsNoAnswer(t *testing.T) {
	c := contradicted(t, object("A", "5"), deleted("A", "5"))
	c.err = errors.New("no answer")
	for n := range 3 {
		if _, err := c.confirm(t); err == nil || c.asked != n+1 {
			t.Fatalf("%d reads, error %v; want a failure each time", c.asked, err)
		}
	}
	c.o, c.err = stored("A", "5"), nil
	if c.rounds(t, 1); c.object.Outlived.Position != c.acked.Position {
		t.Error("the object is not marked as outlived")
	}
}

// TestAnswersAreForgotten verifies that the comparer forgets an answer if its question is not asked
// again.
func TestAnswersAreForgotten(t *testing.T) {
	c := contradicted(t, object("A", "5"), deleted("A", "6"))
	c.err = notFound()
	c.rounds(t, 1)
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{firstPause, 1}, {longestPause + time.Second, 0}} {
		c.now = c.now.Add(step.after)
		if _, err := c.Reconcile(t.Context(), testKey.GroupResource(), acked(nil)); err != nil {
			t.Fatal(err)
		}
		if len(c.answers.of) != step.want {
			t.Errorf("%s later %d answers are remembered, want %d", step.after, len(c.answers.of), step.want)
		}
	}
}

// TestAnotherEntryIsAnotherQuestion verifies that a changed entry is a new question. In an earlier
// version, a read answered the question about a foreign event, and then a conflict showed that the
// event had another UID. The comparer found only at the next refresh that this UID was gone.
func TestAnotherEntryIsAnotherQuestion(t *testing.T) {
	c := contradicted(t, object("B", "8"), deleted("A", "2"))
	c.o = stored("B", "8")
	c.acked.Foreign = true
	c.rounds(t, 1)
	if c.object.Outlived.Position != c.acked.Position {
		t.Fatal("the informer is not confirmed")
	}
	c.acked = live("C", "6")
	c.acked.Position = c.object.Outlived.Position
	if found, err := c.confirm(t); err != nil || found.Deleted != 1 {
		t.Errorf("got %+v, error %v; want the delete of C", found, err)
	}
}
