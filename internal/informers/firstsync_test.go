package informers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// finishing begins a first sync, runs steps and then Finish. It returns the number of
// objects in each completed marker.
func finishing(t *testing.T, steps func(b *bench)) *[]int {
	t.Helper()
	var completed []int
	b := newBench(t, Config{Markers: stubMarkers{finished: func(n int) error { completed = append(completed, n); return nil }}}, testResource)
	if !b.watched.firstSync.Begin(t.Context()) {
		t.Fatal("the first sync did not begin")
	}
	steps(b)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.watched.firstSync.Finish(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
	return &completed
}

// TestTheFirstSyncIsCompleteWhenTheBusHasItAll verifies when the completed marker is written. Each
// step performs an action before or while Finish waits, and states how many markers must be
// written after it.
func TestTheFirstSyncIsCompleteWhenTheBusHasItAll(t *testing.T) {
	type step struct {
		do        func(*bench)
		completed int // markers written after this step
	}
	list := func(uid, version string) func(*bench) {
		return func(b *bench) { b.list(object(uid, version)) }
	}
	settle := func(a event.Acked) func(*bench) { return func(b *bench) { b.Settle(testKey, a) } }
	other := &event.Object{Namespace: "default", Name: "other", UID: "O", ResourceVersion: "4"}
	otherKey := testResource.Key("default", "other")

	for name, c := range map[string]struct {
		listed  func(*bench)
		steps   []step
		objects int
	}{
		"nothing is there": {func(*bench) {}, []step{{func(*bench) {}, 1}}, 0},
		"every object is acknowledged": {func(b *bench) { b.list(object("A", "1")); b.list(other) }, []step{
			{settle(live("A", "1")), 0},
			{func(b *bench) { b.Settle(otherKey, live("O", "4")) }, 1},
		}, 2},
		"acknowledged before the list was at its end": {func(b *bench) {
			b.list(object("A", "1"))
			b.Settle(testKey, live("A", "1"))
		}, []step{{func(*bench) {}, 1}}, 1},
		"published before it was reported": {func(b *bench) {
			b.index(object("A", "1"))
			b.Settle(testKey, live("A", "1"))
			b.list(object("A", "1"))
		}, []step{{func(*bench) {}, 0}, {settle(live("A", "1")), 1}}, 1},
		"updated before it was published": {list("A", "1"), []step{
			{func(b *bench) { b.update(object("A", "2")) }, 0},
			{settle(live("A", "1")), 0},
			{settle(live("A", "2")), 1},
		}, 1},
		"the update published before it was reported": {list("A", "1"), []step{
			{func(b *bench) { b.index(object("A", "2")) }, 0},
			{settle(live("A", "2")), 0},
			{func(b *bench) { b.onUpdate(b.informer(object("A", "2")), object("A", "1"), object("A", "2")) }, 0},
			{settle(live("A", "2")), 1},
		}, 1},
		"deleted before it was published": {list("A", "1"), []step{
			{func(b *bench) { b.delete(object("A", "3")) }, 0},
			{settle(event.Acked{}), 1},
		}, 0},
		"deleted while its event is in flight": {list("A", "1"), []step{
			{func(b *bench) { b.delete(object("A", "3")) }, 0},
			{settle(live("A", "1")), 1},
		}, 0},
		"deleted while its event is in flight, without an answer": {list("A", "1"), []step{
			{func(b *bench) { b.delete(object("A", "3")) }, 0},
			{func(b *bench) { b.Unanswered(testKey, event.Acked{}, live("A", "1")) }, 0},
			{settle(deleted("A", "3")), 1},
		}, 0},
		"recreated while its event is in flight": {list("A", "1"), []step{
			{func(b *bench) { b.delete(object("A", "3")) }, 0},
			{func(b *bench) { b.add(object("B", "5")) }, 0},
			{settle(live("A", "1")), 1},
		}, 1},
		"the last but one deleted before it was published": {func(b *bench) { b.list(object("A", "1")); b.list(other) }, []step{
			{func(b *bench) { b.delete(object("A", "3")) }, 0},
			{settle(event.Acked{}), 0},
			{func(b *bench) { b.Settle(otherKey, live("O", "4")) }, 1},
		}, 1},
		"recreated, as one update, before it was published": {list("A", "1"), []step{
			{func(b *bench) { b.update(object("B", "3")) }, 0},
			{settle(live("B", "3")), 1},
		}, 1},
		"something new meanwhile does not hold it up": {list("A", "1"), []step{
			{func(b *bench) { b.add(other) }, 0},
			{settle(live("A", "1")), 1},
		}, 2},
		// The key may not be in the queue, because it waits for its owner.
		"no longer covered, because access is denied": {list("A", "1"), []step{
			{func(b *bench) {
				i := b.informer(object("A", "1"))
				i.cancel = func() { close(i.stopped) }
				b.replace(b.watched, []*informer{i}, nil)
				b.drop(b.watched, i)
			}, 1},
		}, 0},
		"a later writer's state is waited for": {list("A", "1"), []step{
			{settle(live("A", "2")), 0}, // another replica published this state
			{func(b *bench) { b.update(object("A", "2")) }, 0},
			{settle(live("A", "2")), 1},
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bench
				completed := finishing(t, func(made *bench) { b = made; c.listed(b) })
				for n, s := range c.steps {
					s.do(b)
					synctest.Wait()
					if len(*completed) != s.completed {
						t.Fatalf("after step %d: %d markers, want %d", n, len(*completed), s.completed)
					}
				}
				if got := (*completed)[0]; got != c.objects {
					t.Errorf("the marker counts %d objects, want %d", got, c.objects)
				}
			})
		})
	}
}

// TestFirstSyncIsThatOfABusWithoutTheMarker verifies that an object belongs to a first sync only if
// the bus has no completed marker and the object was in the first list.
func TestFirstSyncIsThatOfABusWithoutTheMarker(t *testing.T) {
	for name, c := range map[string]struct {
		completed bool
		notify    func(*bench)
		cause     event.Cause
		first     bool
	}{
		"first sync, listed":          {false, func(b *bench) { b.list(object("A", "1")) }, event.CauseSnapshot, true},
		"first sync, created after":   {false, func(b *bench) { b.add(object("A", "1")) }, event.CauseWatch, false},
		"later sync, listed":          {true, func(b *bench) { b.list(object("A", "1")) }, event.CauseReconcile, false},
		"later sync, created after":   {true, func(b *bench) { b.add(object("A", "1")) }, event.CauseWatch, false},
		"first sync, listed, updated": {false, func(b *bench) { b.list(object("A", "1")); b.update(object("A", "2")) }, event.CauseWatch, true},
	} {
		t.Run(name, func(t *testing.T) {
			started := 0
			b := newBench(t, Config{Markers: stubMarkers{
				completed: func() (bool, error) { return c.completed, nil },
				started:   func() error { started++; return nil },
			}}, testResource)
			b.watched.firstSync.Begin(t.Context())
			if want := map[bool]int{false: 1, true: 0}[c.completed]; started != want {
				t.Errorf("%d started markers, want %d", started, want)
			}
			c.notify(b)
			if v := b.Lookup(testKey); v.Cause != c.cause || v.FirstSync != c.first {
				t.Errorf("got cause %s, first sync %v; want %s, %v", v.Cause, v.FirstSync, c.cause, c.first)
			}
		})
	}
}

// TestTheFirstSyncDoesNotWaitForWhatCannotBePublished verifies that a first sync does not wait for
// an unpublishable state, but its key stays dirty.
func TestTheFirstSyncDoesNotWaitForWhatCannotBePublished(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.watched.firstSync.Begin(t.Context())
	b.list(object("A", "1"))
	if got := b.ledger.FirstSyncLeft(testResource.GroupResource()); got != 1 {
		t.Fatalf("%d keys are left, want 1", got)
	}
	for range 2 {
		b.Unpublishable(testKey)
		if got := b.ledger.FirstSyncLeft(testResource.GroupResource()); got != 0 {
			t.Errorf("%d keys are left, want none", got)
		}
	}
	if b.ledger.DirtyLen() != 1 {
		t.Error("the key is no longer dirty")
	}
}

// TestMarkersThatTheBusHasLostAreWrittenAgain verifies that lost markers are written again once the
// bus has the objects that it lost with them, without another comparison. One earlier version wrote
// the markers to a recreated stream before the stream had every object. Another one wrote them up to
// KUBERELAY_CHECKPOINT_REFRESH after the objects.
func TestMarkersThatTheBusHasLostAreWrittenAgain(t *testing.T) {
	for name, c := range map[string]struct {
		running, onBus bool
		live           *event.Object
		shown          bool   // the bus has live
		refused        bool   // live can't be published
		before, after  string // the markers that are written before and after the bus receives live
		err            error
	}{
		"lost":                             {before: "started finished", after: "started finished"},
		"lost, and the bus has the object": {live: object("A", "1"), shown: true, before: "started finished", after: "started finished"},
		"lost, and the object too":         {live: object("A", "1"), after: "started finished"},
		"lost, and the object is refused":  {live: object("A", "1"), refused: true, before: "started finished", after: "started finished"},
		"there":                            {onBus: true, live: object("A", "1")},
		"not completed yet":                {running: true},
		"nobody can tell":                  {err: errors.New("bus down")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var written []string
				b := newBench(t, Config{Markers: stubMarkers{
					completed: func() (bool, error) { return c.onBus || len(written) > 1, c.err },
					started:   func() error { written = append(written, "started"); return nil },
					finished:  func(int) error { written = append(written, "finished"); return nil },
				}}, testResource)
				if !c.running {
					b.watched.firstSync.Finish(t.Context())
					written = nil
				}
				close(b.watched.firstSynced)
				if c.live != nil {
					b.list(c.live)
				}
				if c.refused {
					b.Unpublishable(testKey)
				}
				show := func() { b.term.Put(testKey, event.Acked{UID: "A", ResourceVersion: "1", Position: 1}) }
				if c.shown {
					show()
				}
				ctx, end := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); b.watched.firstSync.Keep(ctx) }()
				for range 2 { // the second comparison must not write the markers again
					if _, err := b.Reconcile(ctx, testResource.GroupResource(), acked(nil)); !errors.Is(err, c.err) {
						t.Errorf("got %v, want %v", err, c.err)
					}
					synctest.Wait()
				}
				if got := strings.Join(written, " "); got != c.before {
					t.Errorf("wrote %q before the bus had the object, want %q", got, c.before)
				}
				show()
				time.Sleep(time.Hour) // on the synctest clock
				synctest.Wait()
				if got := strings.Join(written, " "); got != c.after {
					t.Errorf("wrote %q, want %q", got, c.after)
				}
				end()
				<-ended
			})
		})
	}
}

// TestANamespaceSelectedLaterIsNotOfTheFirstSync verifies that objects of a namespace that is
// selected later do not belong to the first sync. In an earlier version, their events followed the
// completed marker, but had the type snapshot.
func TestANamespaceSelectedLaterIsNotOfTheFirstSync(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	if v := b.Lookup(testKey); !v.FirstSync {
		t.Error("an object of the first list does not belong to the first sync")
	}
	over, end := context.WithCancel(t.Context())
	end()
	b.watched.firstSync.Finish(over) // all selected objects are listed
	other := object("B", "2")
	other.Name = "later"
	b.list(other)
	if v := b.Lookup(testResource.Key(other.Namespace, other.Name)); v.FirstSync {
		t.Error("an object that was listed later belongs to the first sync")
	}
}
