package publishtest

import (
	"errors"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// wantConflict publishes m and wants to be told that the bus holds something else.
func wantConflict(t *testing.T, p publish.Publisher, m *event.Message, want event.Acked) {
	t.Helper()
	position, err := publishNow(t, p, m)
	var conflict *publish.ConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("publish %s expecting %d gave position %d, error %v; want a conflict", m.ID, m.Expected, position, err)
	}
	if conflict.Key != m.Key {
		t.Errorf("conflict of %s, want %s", conflict.Key, m.Key)
	}
	want.Time = conflict.Bus.Time // not every bus knows it
	if conflict.Bus != want {
		t.Errorf("the conflict says that the bus holds %+v, want %+v", conflict.Bus, want)
	}
}

func acked(m *event.Message, position uint64) event.Acked {
	a := m.Acked
	a.Position = position
	return a
}

// testAgain: what the forwarder does after an error that left the outcome
// unknown, or after a restart with an old checkpoint.
func testAgain(t *testing.T, bus Bus) {
	need(t, bus.CompareAndSet, "compare-and-set")
	p := open(t, bus)
	created := Object{Name: "web", Version: 1}.Message(t, 0)
	first := mustPublish(t, p, created)
	if got := mustPublish(t, p, created); got != first {
		t.Errorf("position %d at the second time, %d at the first", got, first)
	}
	// A delete's id holds no version, so anyone can predict it: the data tells whether it
	// is the same event.
	deleted := Object{Name: "web", Version: 2, Deleted: true}.Message(t, first)
	second := mustPublish(t, p, deleted)
	if got := mustPublish(t, p, deleted); got != second {
		t.Errorf("position %d at the second delete, %d at the first", got, second)
	}
	wantConflict(t, p, Object{Name: "web", Version: 1, Deleted: true}.Message(t, first), acked(deleted, second))
	wantEvents(t, bus, created.Key, []Event{
		{created.ID, first, string(created.Data)},
		{deleted.ID, second, string(deleted.Data)},
	})
}

func testConflict(t *testing.T, bus Bus) {
	need(t, bus.CompareAndSet, "compare-and-set")
	p := open(t, bus)
	m1 := Object{Name: "web", Version: 1}.Message(t, 0)
	first := mustPublish(t, p, m1)
	m2 := Object{Name: "web", Version: 2, Epoch: 3}.Message(t, first)
	second := mustPublish(t, p, m2)

	// An older event than the last: its id is on the bus, but not last.
	wantConflict(t, p, m1, acked(m2, second))
	// A position that is not the last.
	wantConflict(t, p, Object{Name: "web", Version: 3}.Message(t, first), acked(m2, second))
	// A position that is not there yet.
	wantConflict(t, p, Object{Name: "web", Version: 3}.Message(t, second+100), acked(m2, second))
	// None expected: another object by the same name.
	wantConflict(t, p, Object{Name: "web", Version: 9, UID: "other"}.Message(t, 0), acked(m2, second))
	// The same id with another state, after the API server's history went back.
	wantConflict(t, p, Object{Name: "web", Version: 2, Epoch: 4}.Message(t, first), acked(m2, second))

	deleted := Object{Name: "web", Version: 4, Deleted: true}.Message(t, second)
	third := mustPublish(t, p, deleted)
	wantConflict(t, p, Object{Name: "web", Version: 3}.Message(t, second), acked(deleted, third))
	wantEvents(t, bus, m1.Key, []Event{
		{m1.ID, first, string(m1.Data)}, {m2.ID, second, string(m2.Data)}, {deleted.ID, third, string(deleted.Data)},
	})
}

func testConflictNothing(t *testing.T, bus Bus) {
	need(t, bus.CompareAndSet, "compare-and-set")
	p := open(t, bus)
	m := Object{Name: "web", Version: 1}.Message(t, 5)
	wantConflict(t, p, m, event.Acked{})
	wantEvents(t, bus, m.Key, nil)
}

func testPurged(t *testing.T, bus Bus) {
	need(t, bus.CompareAndSet && bus.Purge != nil, "compare-and-set, or no way to purge")
	p := open(t, bus)
	m1 := Object{Name: "web", Version: 1}.Message(t, 0)
	first := mustPublish(t, p, m1)
	other := Object{Name: "other", Version: 1}.Message(t, 0)
	mustPublish(t, p, other)

	bus.Purge(t, m1.Key)
	wantConflict(t, p, Object{Name: "web", Version: 2}.Message(t, first), event.Acked{})
	m2 := Object{Name: "web", Version: 2}.Message(t, 0)
	second := mustPublish(t, p, m2)
	if second <= first {
		t.Errorf("position %d after %d was purged", second, first)
	}
	wantEvents(t, bus, m1.Key, []Event{{m2.ID, second, string(m2.Data)}})
}

// testStaleWriter: a writer that was leader once, and knows no better, does not
// get a word in.
func testStaleWriter(t *testing.T, bus Bus) {
	need(t, bus.CompareAndSet && !bus.Exclusive, "compare-and-set, or only one writer")
	stale, leader := open(t, bus), open(t, bus)
	m1 := Object{Name: "web", Version: 1}.Message(t, 0)
	first := mustPublish(t, stale, m1)
	m2 := Object{Name: "web", Version: 2}.Message(t, first)
	second := mustPublish(t, leader, m2)
	wantConflict(t, stale, Object{Name: "web", Version: 1, Deleted: true}.Message(t, first), acked(m2, second))
	// The same event of both is one event.
	m3 := Object{Name: "web", Version: 3}.Message(t, second)
	third := mustPublish(t, leader, m3)
	if got := mustPublish(t, stale, m3); got != third {
		t.Errorf("position %d for the second writer, %d for the first", got, third)
	}
	wantEvents(t, bus, m1.Key, []Event{
		{m1.ID, first, string(m1.Data)}, {m2.ID, second, string(m2.Data)}, {m3.ID, third, string(m3.Data)},
	})
}

// testTakenOver: where there is one writer, the one before is refused for good, also
// for an object that the new one has never written, and says that it is.
func testTakenOver(t *testing.T, bus Bus) {
	need(t, bus.Exclusive, "single writer")
	stale := open(t, bus)
	m1 := Object{Name: "web", Version: 1}.Message(t, 0)
	first := mustPublish(t, stale, m1)
	leader := open(t, bus)
	m2 := Object{Name: "web", Version: 2}.Message(t, first)
	second := mustPublish(t, leader, m2)
	for _, m := range []*event.Message{
		Object{Name: "web", Version: 3}.Message(t, second), Object{Name: "web", Version: 1, Deleted: true}.Message(t, first), Object{Name: "other", Version: 1}.Message(t, 0),
	} {
		if position, err := publishNow(t, stale, m); err == nil {
			t.Errorf("the stale writer has published %s at %d", m.ID, position)
		}
	}
	eventually(t, "gone", func() bool { return errors.Is(stale.Ready(), publish.ErrGone) })
	mustPublish(t, leader, Object{Name: "other", Version: 1}.Message(t, 0))
	wantEvents(t, bus, m1.Key, []Event{{m1.ID, first, string(m1.Data)}, {m2.ID, second, string(m2.Data)}})
}
