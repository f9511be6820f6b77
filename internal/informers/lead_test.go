package informers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// standby is a bench with a standby Set of one resource.
type standby struct {
	*bench
	marks []string // the markers that were written
	done  bool     // the bus has the completed marker
}

func newStandby(t *testing.T) *standby {
	s := &standby{}
	s.bench = newBench(t, Config{Standby: true, Remember: time.Minute, Markers: stubMarkers{
		completed: func() (bool, error) { return s.done, nil },
		started:   func() error { s.marks = append(s.marks, "started"); return nil },
		finished:  func(int) error { s.marks = append(s.marks, "completed"); s.done = true; return nil },
	}}, testResource)
	close(s.watched.firstSynced) // the informers have synced
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.joinTerms(ctx, s.watched) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s
}

// lead begins a term and returns the enqueued keys.
func (s *standby) lead() []event.Key {
	s.takeEnqueued()
	s.StartLeading()
	synctest.Wait()
	keys := s.takeEnqueued()
	slices.SortFunc(keys, func(a, b event.Key) int { return len(a.Name) - len(b.Name) })
	return slices.Compact(keys)
}

func TestNothingIsHandedOutAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t)
		s.list(object("A", "1"))
		s.update(object("A", "2"))
		s.EnqueueAll()
		synctest.Wait()
		if got := s.takeEnqueued(); len(got) > 0 || len(s.compared) > 0 || len(s.marks) > 0 {
			t.Errorf("enqueued %v, compared %v, marked %v; want nothing", got, s.compared, s.marks)
		}
		if got := s.lead(); len(got) != 1 || got[0] != testKey || len(s.compared) == 0 {
			t.Errorf("then enqueued %v, compared %v", got, s.compared)
		}
		s.update(object("A", "3"))
		if got := s.takeEnqueued(); len(got) != 1 {
			t.Errorf("after a change enqueued %v", got)
		}
		s.StopLeading()
		s.update(object("A", "4"))
		if got := s.takeEnqueued(); len(got) > 0 {
			t.Errorf("after StopLeading, enqueued %v; want nothing", got)
		}
	})
}

// TestObjectThatReturnsAtRest verifies that a standby drops the tombstone of an object when a new informer lists
// the object again. An earlier version kept the tombstone. After the standby had become the leader, the key stayed
// dirty, and its resource got no consistency points (found by the simulator).
func TestObjectThatReturnsAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t)
		s.list(object("A", "1"))
		s.delete(object("A", "2")) // it left the label selector
		s.list(object("A", "3"))   // by another informer
		s.lead()
		s.Settle(testKey, live("A", "3"))
		if s.ledger.IsDirty(testKey) {
			t.Errorf("the key is dirty: %+v", s.Lookup(testKey).Tombstones)
		}
	})
}

// TestWhatWasListedAtRestIsOfTheFirstSync verifies that objects that a standby has listed belong to
// the first sync, unless the bus has the completed marker.
func TestWhatWasListedAtRestIsOfTheFirstSync(t *testing.T) {
	for name, done := range map[string]bool{"the bus has none": false, "the bus has one": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStandby(t)
				s.done = done
				s.list(object("A", "1"))
				s.update(object("A", "2"))
				if n := s.ledger.FirstSyncLeft(testResource.GroupResource()); n > 0 {
					t.Fatalf("%d objects belong to a first sync on a standby, want none", n)
				}
				s.lead()
				if v := s.Lookup(testKey); v.FirstSync != !done {
					t.Errorf("first sync: %v", v.FirstSync)
				}
				s.Settle(testKey, live("A", "2"))
				synctest.Wait()
				want := []string{"started", "completed"}
				if done {
					want = nil
				}
				if !slices.Equal(s.marks, want) {
					t.Errorf("marked %v, want %v", s.marks, want)
				}
			})
		})
	}
}

// TestAFirstSyncThatATermDidNotFinishBeginsAgain verifies that an incomplete first sync begins
// again in the next term, with all objects that exist then.
func TestAFirstSyncThatATermDidNotFinishBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t)
		s.list(object("A", "1"))
		s.lead()
		s.StopLeading()
		if n := s.ledger.FirstSyncLeft(testResource.GroupResource()); n > 0 {
			t.Errorf("%d objects belong to a first sync on a standby, want none", n)
		}
		s.Settle(testKey, live("A", "1")) // too late, because no first sync waits for the key
		s.add(&event.Object{Namespace: "default", Name: "other", UID: "O", ResourceVersion: "4"})
		if got := s.lead(); len(got) != 2 {
			t.Errorf("enqueued %v, want both", got)
		}
		if n := s.ledger.FirstSyncLeft(testResource.GroupResource()); n != 2 {
			t.Errorf("%d objects belong to the first sync, want 2", n)
		}
		if want := []string{"started", "started"}; !slices.Equal(s.marks, want) {
			t.Errorf("marked %v, want %v", s.marks, want)
		}
	})
}

// TestWhatWasSeenAtRestIsRememberedForAWhile verifies that a standby forgets deletes after
// Config.Remember. Otherwise it would keep them until it leads.
func TestWhatWasSeenAtRestIsRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.forgetRegularly(ctx)
		other := &event.Object{Namespace: "default", Name: "other", UID: "O", ResourceVersion: "4", Body: event.JSON([]byte(`{}`))}
		s.list(object("A", "1"))
		s.list(other)
		s.delete(object("A", "2"))
		time.Sleep(50 * time.Second)
		s.delete(other)
		synctest.Wait()
		if n := s.ledger.DirtyLen(); n != 2 {
			t.Fatalf("%d deletes are remembered, want 2", n)
		}
		time.Sleep(26 * time.Second)
		synctest.Wait()
		if got := s.lead(); len(got) != 1 || got[0].Name != "other" {
			t.Errorf("enqueued %v, want the last deleted object", got)
		}
		v := s.Lookup(testResource.Key("default", "other"))
		if len(v.Tombstones) != 1 || v.Tombstones[0].Object == nil {
			t.Errorf("the tombstones are %v, want one with the last state", v.Tombstones)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := s.ledger.DirtyLen(); n != 1 {
			t.Errorf("%d deletes are remembered while it leads, want 1", n)
		}
		cancel()
		synctest.Wait()
	})
}

// TestATermBeginsWithTheDeletesOfAnUnwatchedResource verifies that a term enqueues the deletes of a
// resource that is no longer watched. Otherwise they would stay dirty until the next reload of the
// checkpoint, even if the bus has them.
func TestATermBeginsWithTheDeletesOfAnUnwatchedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t)
		k := event.Key{Group: "example.com", Resource: "widgets", Namespace: "default", Name: "gone"}
		s.ledger.AddTombstone(k, event.Tombstone{UID: "W", Observed: time.Now()})
		if got := s.lead(); !slices.Equal(got, []event.Key{k}) {
			t.Errorf("enqueued %v, want %v", got, k)
		}
	})
}

// TestATermThatABusOfALaterEpochBegins verifies that a term on a bus with a later epoch enqueues
// nothing until the informers have restarted, because they may hold states of the previous history.
func TestATermThatABusOfALaterEpochBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t)
		s.list(object("A", "1"))
		s.RaiseEpochs(1)
		if got := s.lead(); len(got) > 0 || len(s.marks) > 0 {
			t.Errorf("enqueued %v, marked %v; want nothing", got, s.marks)
		}
	})
}
