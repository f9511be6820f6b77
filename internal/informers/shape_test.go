package informers

import (
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
)

// unselected returns an object whose content is not selected.
func unselected(uid, version string) *event.Object {
	o := object(uid, version)
	o.Body, o.Unselected = event.Body{}, true
	return o
}

func newShapedBench(t *testing.T) *bench {
	t.Helper()
	return newBench(t, Config{Shape: func(event.Resource) decode.Shape { return decode.Shape{} }}, testResource)
}

// viewInWords formats the live object, the previous state and the tombstones of a view.
func viewInWords(v event.View) string {
	word := func(o *event.Object) string {
		if o == nil {
			return "-"
		}
		return string(o.UID) + "." + o.ResourceVersion
	}
	text := word(v.Live) + " before " + word(v.Before)
	for _, t := range v.Tombstones {
		how := "deleted"
		if t.Deselected {
			how = "deselected"
		}
		text += fmt.Sprintf(", %s %s %s %s", t.UID, how, word(t.Object), t.Cause)
		if t.Observed.IsZero() {
			text += " at no time"
		}
	}
	return text
}

// TestWhatIsSelectedByItsContent verifies that an object whose content stops matching gets a
// tombstone with its last matching state. Its later states are not published.
func TestWhatIsSelectedByItsContent(t *testing.T) {
	type step = func(*bench)
	list := func(o *event.Object) step { return func(b *bench) { b.list(o) } }
	add := func(o *event.Object) step { return func(b *bench) { b.add(o) } }
	update := func(o *event.Object) step { return func(b *bench) { b.update(o) } }
	remove := func(o *event.Object) step { return func(b *bench) { b.delete(o) } }
	acked := func(o *event.Object) step {
		return func(b *bench) { b.Acknowledged(testKey, live(string(o.UID), o.ResourceVersion), o) }
	}
	settle := func(a event.Acked) step { return func(b *bench) { b.Settle(testKey, a) } }
	left := deleted("A", "1")
	left.Deselected = true
	for name, c := range map[string]struct {
		steps   []step
		want    string
		objects int
		first   int
	}{
		"matches":                                {[]step{list(object("A", "1"))}, "A.1 before -", 1, 1},
		"does not, and may be on the bus":        {[]step{list(unselected("A", "1"))}, "- before -, A deselected - reconcile", 0, 0},
		"does not, and comes by the watch":       {[]step{add(unselected("A", "1"))}, "- before -, A deselected - reconcile", 0, 0},
		"stops":                                  {[]step{add(object("A", "1")), acked(object("A", "1")), update(unselected("A", "2"))}, "- before -, A deselected A.1 watch", 0, 0},
		"stops and goes on not to":               {[]step{add(object("A", "1")), update(unselected("A", "2")), update(unselected("A", "3"))}, "- before -, A deselected A.1 watch", 0, 0},
		"stops before it was published":          {[]step{list(object("A", "1")), update(unselected("A", "2")), settle(event.Acked{})}, "- before -, A deselected - reconcile", 0, 0},
		"stops, and the bus knows":               {[]step{add(object("A", "1")), update(unselected("A", "2")), settle(left)}, "- before -, A deselected - reconcile", 0, 0},
		"stops and matches again":                {[]step{add(object("A", "1")), update(unselected("A", "2")), update(object("A", "3"))}, "A.3 before -", 1, 0},
		"starts":                                 {[]step{list(unselected("A", "1")), update(object("A", "2"))}, "A.2 before -", 1, 0},
		"stops and is deleted":                   {[]step{add(object("A", "1")), update(unselected("A", "2")), remove(unselected("A", "3"))}, "- before -, A deleted A.1 watch", 0, 0},
		"never matched and is deleted":           {[]step{add(unselected("A", "1")), remove(unselected("A", "2"))}, "- before -, A deleted - watch", 0, 0},
		"is deleted":                             {[]step{add(object("A", "1")), remove(object("A", "2"))}, "- before -, A deleted A.2 watch", 0, 0},
		"another takes the name and does not":    {[]step{add(object("A", "1")), update(unselected("B", "5"))}, "- before -, A deleted A.1 watch, B deselected - reconcile", 0, 0},
		"it did not, and another does":           {[]step{add(unselected("A", "1")), update(object("B", "5"))}, "B.5 before -, A deleted - watch", 1, 0},
		"deselected while it is in flight":       {[]step{list(object("A", "1")), update(unselected("A", "2"))}, "- before -, A deselected A.1 watch", 0, 1},
		"the first sync does not wait for it":    {[]step{list(object("A", "1")), update(unselected("A", "2")), acked(object("A", "1"))}, "- before -, A deselected A.1 watch", 0, 0},
		"changed":                                {[]step{add(object("A", "1")), acked(object("A", "1")), update(object("A", "2"))}, "A.2 before A.1", 1, 0},
		"changed twice":                          {[]step{add(object("A", "1")), acked(object("A", "1")), update(object("A", "2")), update(object("A", "3"))}, "A.3 before A.1", 1, 0},
		"changed while another is in flight":     {[]step{add(object("A", "1")), acked(object("A", "1")), update(object("A", "2")), update(object("A", "3")), acked(object("A", "2"))}, "A.3 before A.2", 1, 0},
		"changed while the first is in flight":   {[]step{add(object("A", "1")), update(object("A", "2")), acked(object("A", "1"))}, "A.2 before A.1", 1, 0},
		"acknowledged":                           {[]step{add(object("A", "1")), acked(object("A", "1")), update(object("A", "2")), acked(object("A", "2"))}, "A.2 before -", 1, 0},
		"recreated: nothing was before":          {[]step{add(object("A", "1")), acked(object("A", "1")), update(object("B", "5"))}, "B.5 before -, A deleted A.1 watch", 1, 0},
		"stopped, started, changed":              {[]step{add(object("A", "1")), acked(object("A", "1")), update(unselected("A", "2")), update(object("A", "3")), update(object("A", "4"))}, "A.4 before -", 1, 0},
		"another's state in flight says nothing": {[]step{add(object("A", "1")), update(object("B", "5")), acked(object("A", "1"))}, "B.5 before -, A deleted A.1 watch", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShapedBench(t)
			for n, step := range c.steps {
				step(b)
				if n == 0 && len(b.takeEnqueued()) != 1 {
					t.Error("the key was not enqueued once")
				}
			}
			if got := viewInWords(b.Lookup(testKey)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if n := b.len(b.watched); n != c.objects {
				t.Errorf("%d objects are selected, want %d", n, c.objects)
			}
			if n := b.ledger.FirstSyncLeft(testResource.GroupResource()); n != c.first {
				t.Errorf("%d of the first sync are left, want %d", n, c.first)
			}
		})
	}
}

// TestWhatIsUnselectedIsForgottenOnceTheBusKnows verifies that a key becomes clean when its object
// stops matching and the bus does not show it. Otherwise a first sync would wait for the key.
func TestWhatIsUnselectedIsForgottenOnceTheBusKnows(t *testing.T) {
	b := newShapedBench(t)
	b.list(object("A", "1"))
	b.index(unselected("A", "2")) // the handler has not been notified yet
	b.Settle(testKey, event.Acked{})
	if n := b.ledger.DirtyLen(); n != 0 {
		t.Errorf("%d keys are remembered, want none", n)
	}
}

// TestWhatIsUnselectedIsNotForgottenBeforeTheBusKnows verifies that a key stays dirty if its object
// stopped matching while the bus shows the object. The indexer shows the change before the handler
// is notified. In an earlier version, a consistency point falsely promised that the bus had the
// last matching state.
func TestWhatIsUnselectedIsNotForgottenBeforeTheBusKnows(t *testing.T) {
	for name, settle := range map[string]func(*bench){
		"an earlier state is acknowledged": func(b *bench) { b.Acknowledged(testKey, live("A", "1"), object("A", "1")) },
		"an earlier state got no answer":   func(b *bench) { b.Unanswered(testKey, event.Acked{}, event.Acked{UID: "A"}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newShapedBench(t)
			b.add(object("A", "1"))
			b.update(object("A", "2"))
			mark := b.ledger.Mark(testResource.GroupResource())
			b.index(unselected("A", "3"))
			settle(b)
			if b.ledger.Reached(mark) {
				t.Error("the mark is reached, although the bus lacks the last matching state")
			}
		})
	}
}

// TestAtRestNoStateIsKept verifies that a standby does not record the previous state of an object,
// because the leader may have published another state. The test settles the first state, because a
// dirty key keeps its previous state anyway.
func TestAtRestNoStateIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		standby bool
		want    string
	}{
		"at rest": {true, "A.2 before -"},
		"leading": {false, "A.2 before A.1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{Standby: c.standby}, testResource)
			b.add(object("A", "1"))
			b.Settle(testKey, live("A", "1"))
			if n := b.ledger.DirtyLen(); n != 0 {
				t.Fatalf("%d keys are remembered, want none", n)
			}
			b.update(object("A", "2"))
			if got := viewInWords(b.Lookup(testKey)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
