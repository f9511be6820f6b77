package ledger

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

var pods, nodes = schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "nodes"}

func pod(name string) event.Key { return event.Key{Resource: "pods", Namespace: "default", Name: name} }

func atVersion(version string) event.Acked { return event.Acked{UID: uid, ResourceVersion: version} }

// load runs a load with all events, and calls during before the load finishes.
func load(t *Term, events map[event.Key]event.Acked, during func()) (lost int) {
	l := t.StartLoad()
	for k, a := range events {
		l.Put(k, a)
	}
	during()
	return l.Finish(func(event.Key, event.Acked, error) {})
}

// TestEntriesYieldsEachOnce verifies that Entries yields each entry once, even if the caller writes
// during the iteration.
func TestEntriesYieldsEachOnce(t *testing.T) {
	c := New().NewTerm()
	const entries = 3 * walkBatch
	for n := range entries {
		c.Put(pod(strconv.Itoa(n)), atVersion("1"))
		c.Put(pod("unpacked-"+strconv.Itoa(n)), event.Acked{UID: "A", ResourceVersion: "1"})
	}
	seen := map[event.Key]int{}
	for k, a := range c.Entries(pods) {
		if a != c.Get(k) {
			t.Fatalf("got %+v of %s, want the current value %+v", a, k, c.Get(k))
		}
		seen[k]++
		a.ResourceVersion = "2"
		c.Put(k, a)
		c.Put(pod("new-"+strconv.Itoa(len(seen))), atVersion("1")) // the iteration may or may not yield this entry
	}
	for n := range entries {
		for _, k := range []event.Key{pod(strconv.Itoa(n)), pod("unpacked-" + strconv.Itoa(n))} {
			if seen[k] != 1 {
				t.Errorf("%s was yielded %d times, want once", k, seen[k])
			}
		}
	}
	for range c.Entries(pods) {
		break // stops there
	}
}

// TestCountsNeedNoScan verifies that values that are read often come from counts, which each write
// updates. The test removes the entries but not the counts, so a scan would find nothing.
func TestCountsNeedNoScan(t *testing.T) {
	c := New().NewTerm()
	alone := event.Acked{UID: uid, ResourceVersion: "1", Epoch: 2, Deleted: true}
	node := event.Key{Resource: "nodes", Namespace: "default", Name: "n"}
	c.Put(pod("a"), event.Acked{UID: uid, ResourceVersion: "1", Epoch: 1})
	c.Put(pod("alone"), alone)
	c.Put(node, atVersion("1"))
	c.ledger.tables[pods].records = nil
	c.ledger.tables[pods].epochs = map[uint16]int{2: 1, 3: 1} // highest does not reflect this change
	if got := c.Epochs(); got[pods] != 2 || got[nodes] != 0 {
		t.Errorf("the epochs are %v, want 2 of pods", got)
	}
	if !c.HoldsEpoch(pods, alone) {
		t.Error("the only entry of the highest epoch is not recognized")
	}
	if got := c.Len(); got != 3 {
		t.Errorf("%d entries, want 3", got)
	}
	if got := len(c.Resources()); got != 2 {
		t.Errorf("%d resources, want 2", got)
	}
	c.ledger.tables[pods] = nil // a visit to another resource panics
	for k := range c.Entries(nodes) {
		if k != node {
			t.Errorf("Entries of nodes yields %s", k)
		}
	}
}

// TestAcknowledgementsDoNotWaitForARefresh verifies that a refresh releases the lock after every
// batch, so writers make progress. An earlier version held the lock for four scans of all entries.
func TestAcknowledgementsDoNotWaitForARefresh(t *testing.T) {
	c := New().NewTerm()
	bus := map[event.Key]event.Acked{}
	for n := range 4 * walkBatch {
		k := pod(strconv.Itoa(n))
		c.Put(k, atVersion("1"))
		bus[k] = atVersion("1")
	}
	visited, mu := 0, &c.ledger.mu
	for k := range c.Entries(pods) {
		if visited++; !mu.TryLock() {
			t.Fatal("an acknowledgement would wait for the whole walk")
		}
		mu.Unlock()
		c.Put(k, atVersion("2"))
	}
	if visited != len(bus) {
		t.Errorf("%d entries were visited, want %d", visited, len(bus))
	}
	// A load does not replace an entry that was written after the load started.
	late := pod("7")
	load(c, bus, func() { c.Put(late, atVersion("9")) })
	if got := c.Get(late); got != atVersion("9") || c.Len() != len(bus) {
		t.Errorf("got %+v, %d entries", got, c.Len())
	}
}

// TestLoadLeavesWhatWasReported verifies that a load does not change the dirty part of any record. A
// dirty key keeps its record even if the bus has lost its event.
func TestLoadLeavesWhatWasReported(t *testing.T) {
	l := New()
	c := l.NewTerm()
	for _, version := range []string{"1", "x"} { // a packed and an unpacked entry
		k := pod(version)
		c.Put(k, atVersion(version))
		l.Observe(k, nil, object(uid, "2"), event.CauseWatch, true, time.Unix(1, 0))
		l.AddTombstone(k, event.Tombstone{UID: "gone", Observed: time.Unix(1, 0)})
	}
	for _, bus := range []map[event.Key]event.Acked{{pod("1"): atVersion("1"), pod("x"): atVersion("x")}, {}} {
		if lost := load(c, bus, func() {}); lost != 2-len(bus) || c.Len() != len(bus) {
			t.Errorf("%d are lost and %d left of %d", lost, c.Len(), len(bus))
		}
		if l.DirtyLen() != 2 || l.FirstSyncLeft(pods) != 2 || !l.HasTombstone(pod("1")) || !l.HasTombstone(pod("x")) {
			t.Errorf("%d keys are dirty, %d of the first sync", l.DirtyLen(), l.FirstSyncLeft(pods))
		}
	}
	l.Forget(all)
	if len(l.tables) > 0 {
		t.Error("a record is left")
	}
}

// TestAfterALoad verifies that the term stops recording written keys after a load, even if the load
// fails.
func TestAfterALoad(t *testing.T) {
	c := New().NewTerm()
	load(c, nil, func() { c.Put(pod("a"), atVersion("1")) })
	if c.written != nil {
		t.Error("writes are still recorded after a load")
	}
	l := c.StartLoad()
	l.Put(pod("a"), atVersion("2"))
	l.Cancel()
	if c.written != nil || c.Get(pod("a")) != atVersion("1") {
		t.Error("a load that failed has an effect")
	}
}

// TestTermEnds verifies that a result from the bus after the end of its term does not affect the
// next term, and that the ledger keeps the reports of the informers.
func TestTermEnds(t *testing.T) {
	l := New()
	first := l.NewTerm()
	first.Put(pod("a"), atVersion("1"))
	first.Put(pod("x"), atVersion("x"))
	first.Put(pod("clean"), atVersion("1"))
	for _, k := range []event.Key{pod("a"), pod("x")} {
		l.Observe(k, nil, object(uid, "2"), event.CauseWatch, true, time.Unix(1, 0))
	}
	late := first.StartLoad()
	late.Put(pod("late"), atVersion("1"))
	first.End()
	for _, next := range []*Term{nil, l.NewTerm()} {
		first.Put(pod("a"), atVersion("3"))
		if first.Replace(pod("a"), event.Acked{}, atVersion("3")) || first.Get(pod("a")) != (event.Acked{}) || first.Len()+len(first.Resources()) > 0 {
			t.Error("a term that has ended has entries")
		}
		if next != nil && (next.Get(pod("a")) != (event.Acked{}) || next.Len() > 0) {
			t.Error("the next term has entries of the previous one")
		}
		if next != nil {
			next.Put(pod("next"), atVersion("1"))
		}
		if n := len(maps.Collect(first.Entries(pods))); n > 0 {
			t.Errorf("%d entries after the end", n)
		}
	}
	if late.Finish(nil); l.term.Len() != 1 {
		t.Error("a load of the term that has ended has an effect")
	}
	if l.DirtyLen() != 2 || l.FirstSyncLeft(pods) != 2 {
		t.Errorf("%d keys are dirty, %d of the first sync; want 2", l.DirtyLen(), l.FirstSyncLeft(pods))
	}
	if l.term.End(); l.term != nil {
		t.Error("the term has not ended")
	}
}

// TestALoadShrinksATable verifies that a load frees the memory of a table that has lost most of its
// records.
func TestALoadShrinksATable(t *testing.T) {
	c := New().NewTerm()
	bus := map[event.Key]event.Acked{pod("left"): atVersion("1")}
	for n := range 1000 {
		c.Put(pod(strconv.Itoa(n)), atVersion("1"))
	}
	load(c, bus, func() {})
	if of := c.ledger.tables[pods]; of.largest != 1 || c.Get(pod("left")) != atVersion("1") {
		t.Errorf("a table for %d records is left", of.largest)
	}
}
