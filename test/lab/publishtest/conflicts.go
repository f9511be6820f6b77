package publishtest

import (
	"errors"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// wantConflict publishes m and expects a conflict with the event that the bus holds.
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
	want.Time = conflict.Bus.Time // some buses don't report the time
	if conflict.Bus != want {
		t.Errorf("the conflict says that the bus holds %+v, want %+v", conflict.Bus, want)
	}
}

func acked(m *event.Message, position uint64) event.Acked {
	a := m.Acked
	a.Position = position
	return a
}

// testAgain verifies that a repeated publish of the same message succeeds. The forwarder repeats a
// publish after an error with an unknown outcome, or after a restart with an old checkpoint.
func testAgain(t *testing.T, bus Bus) {
	need(t, bus.CompareAndSet, "compare-and-set")
	p := open(t, bus)
	created := Object{Name: "web", Version: 1}.Message(t, 0)
	first := mustPublish(t, p, created)
	if got := mustPublish(t, p, created); got != first {
		t.Errorf("position %d at the second time, %d at the first", got, first)
	}
	// The id of a delete contains no resourceVersion, so anyone can predict it. The data shows
	// whether the event is the same.
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

	// m1 is older than the last event. Its id is on the bus, but isn't the last one.
	wantConflict(t, p, m1, acked(m2, second))
	// The expected position isn't the last.
	wantConflict(t, p, Object{Name: "web", Version: 3}.Message(t, first), acked(m2, second))
	// The expected position doesn't exist yet.
	wantConflict(t, p, Object{Name: "web", Version: 3}.Message(t, second+100), acked(m2, second))
	// The writer expects no event, because its object has the same name but another UID.
	wantConflict(t, p, Object{Name: "web", Version: 9, UID: "other"}.Message(t, 0), acked(m2, second))
	// The id is the same, but the epoch differs: the API server was restored from a backup and has
	// assigned the version again.
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

// testStaleWriter verifies that a former leader can't write if it doesn't know about its successor's
// events.
func testStaleWriter(t *testing.T, bus Bus) {
	need(t, bus.CompareAndSet && !bus.Exclusive, "compare-and-set, or only one writer")
	stale, leader := open(t, bus), open(t, bus)
	m1 := Object{Name: "web", Version: 1}.Message(t, 0)
	first := mustPublish(t, stale, m1)
	m2 := Object{Name: "web", Version: 2}.Message(t, first)
	second := mustPublish(t, leader, m2)
	wantConflict(t, stale, Object{Name: "web", Version: 1, Deleted: true}.Message(t, first), acked(m2, second))
	// Both writers publish the same event.
	m3 := Object{Name: "web", Version: 3}.Message(t, second)
	third := mustPublish(t, leader, m3)
	if got := mustPublish(t, stale, m3); got != third {
		t.Errorf("position %d for the second writer, %d for the first", got, third)
	}
	wantEvents(t, bus, m1.Key, []Event{
		{m1.ID, first, string(m1.Data)}, {m2.ID, second, string(m2.Data)}, {m3.ID, third, string(m3.Data)},
	})
}

// testTakenOver verifies a takeover on a bus that allows one writer at a time. The bus refuses all
// messages of the former writer, including those for objects that the new writer hasn't written. The
// former writer reports publish.ErrGone.
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
	poll.Holds(t, "gone", func() bool { return errors.Is(stale.Ready(), publish.ErrGone) })
	mustPublish(t, leader, Object{Name: "other", Version: 1}.Message(t, 0))
	wantEvents(t, bus, m1.Key, []Event{{m1.ID, first, string(m1.Data)}, {m2.ID, second, string(m2.Data)}})
}
