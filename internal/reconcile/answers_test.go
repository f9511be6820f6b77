package reconcile

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// contradiction is a bench on which the bus has a delete, and an informer an object.
type contradiction struct {
	*bench
	asked int
	acked event.Acked
	o     *unstructured.Unstructured
	err   error
}

func contradicted(t *testing.T, live *event.Object, acked event.Acked) *contradiction {
	c := &contradiction{acked: acked}
	c.acked.Position = 8
	c.bench = newBench(t, stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		c.asked++
		return c.o, c.err
	}})
	c.object.Live = live
	return c
}

func (c *contradiction) confirm(t *testing.T) (Comparison, error) {
	t.Helper()
	return c.Confirm(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: c.acked}))
}

// rounds compares a number of times, as a forwarder at rest does after each resync.
func (c *contradiction) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		_, _ = c.confirm(t)
	}
}

// TestTheAnswerIsRemembered: where the watch is behind, nothing but the watch can help. A
// key that is decided again and again, as by a resync, is not asked for each time.
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
				t.Errorf("asked %d times, enqueued %v; want one question and no key", b.asked, b.enqueued)
			}
			for range 20 {
				b.now = b.now.Add(longestPause)
				b.rounds(t, 1)
			}
			if b.asked != 21 {
				t.Errorf("asked %d times, each after the longest pause; want 21", b.asked)
			}
			b.now = b.now.Add(longestPause - time.Second)
			b.rounds(t, 1)
			if b.asked != 21 {
				t.Error("asked again before the longest pause was over")
			}
			b.object.Live = object("A", "8") // something changes
			b.acked.ResourceVersion = "8"
			b.rounds(t, 1)
			if b.asked != 22 {
				t.Errorf("asked %d times; a change is another question", b.asked)
			}
		})
	}
}

// TestAReadThatFailsIsNoAnswer: it is reported, so that it is tried again.
func TestAReadThatFailsIsNoAnswer(t *testing.T) {
	c := contradicted(t, object("A", "5"), deleted("A", "5"))
	c.err = errors.New("no answer")
	for n := range 3 {
		if _, err := c.confirm(t); err == nil || c.asked != n+1 {
			t.Fatalf("asked %d times, error %v; want a failure each time", c.asked, err)
		}
	}
	c.o, c.err = stored("A", "5"), nil
	if c.rounds(t, 1); c.object.Outlived != c.acked.Position {
		t.Error("it is not known that it exists")
	}
}

// TestAnswersAreForgotten: a question that is never asked again costs no memory.
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

// TestAnotherEntryIsAnotherQuestion: a foreign event was read about, and then a conflict told
// that it showed another UID. That this UID was gone was found at the next refresh only.
func TestAnotherEntryIsAnotherQuestion(t *testing.T) {
	c := contradicted(t, object("B", "8"), deleted("A", "2"))
	c.o = stored("B", "8")
	c.acked.Foreign = true
	c.rounds(t, 1)
	if c.object.Outlived != c.acked.Position {
		t.Fatal("the informer is not confirmed")
	}
	c.acked = live("C", "6")
	c.acked.Position = c.object.Outlived
	if found, err := c.confirm(t); err != nil || found.Deleted != 1 {
		t.Errorf("got %+v, error %v; want the delete of C", found, err)
	}
}
