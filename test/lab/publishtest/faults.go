package publishtest

import (
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// testKill kills the bus under load and verifies that no acknowledged message is lost. It publishes
// the other messages again and verifies that the bus stores each of them only once.
func testKill(t *testing.T, bus Bus) {
	need(t, bus.Kill != nil, "way to kill it")
	p := openImpatient(t, bus)
	const objects = 1_000
	all := newCompletions(t)
	for i := range objects {
		if i == objects/2 {
			bus.Kill(t)
		}
		m := Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
		p.Publish(t.Context(), m, all.of(m))
	}
	bus.Start(t)
	stored, failed := map[event.Key]Event{}, []*event.Message(nil)
	for _, c := range all.wait(objects) {
		if c.err != nil {
			failed = append(failed, c.m)
			continue
		}
		stored[c.m.Key] = Event{c.m.ID, c.position, string(c.m.Data)}
	}
	if len(failed) == 0 {
		t.Error("no publish failed, although the bus was killed")
	}
	poll.Holds(t, "ready", func() bool { return p.Ready() == nil })
	for _, m := range failed {
		stored[m.Key] = Event{m.ID, publishUntilStored(t, p, m), string(m.Data)}
	}
	for k, e := range stored {
		wantEvents(t, bus, k, []Event{e})
	}
	all.none()
}

// testMute causes publishes with an unknown outcome: the bus stores a message, but its
// acknowledgement is lost.
func testMute(t *testing.T, bus Bus) {
	need(t, bus.Mute != nil, "way to lose an acknowledgement")
	p := openImpatient(t, bus)
	first := publishUntilStored(t, p, Object{Name: "web", Version: 1}.Message(t, 0))

	const objects = 100
	all := newCompletions(t)
	update := Object{Name: "web", Version: 2}.Message(t, first)
	messages := []*event.Message{update}
	for i := range objects {
		messages = append(messages, Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0))
	}
	// The test needs a bus that has stored the update. On a slow machine, the impatient publisher
	// may give up before it has sent the update.
	poll.Holds(t, "stored without an acknowledgement", func() bool {
		bus.Mute(t)
		all = newCompletions(t)
		for _, m := range messages {
			p.Publish(t.Context(), m, all.of(m))
		}
		for _, c := range all.wait(len(messages)) {
			if c.err == nil {
				t.Errorf("%s is acknowledged without an acknowledgement", c.m.ID)
			}
		}
		bus.Unmute(t)
		poll.Holds(t, "ready", func() bool { return p.Ready() == nil })
		return len(read(t, bus, update.Key)) == 2
	})
	before := map[event.Key][]Event{}
	for _, m := range messages {
		before[m.Key] = read(t, bus, m.Key)
	}
	for _, m := range messages {
		publishUntilStored(t, p, m)
	}
	for _, m := range messages {
		if len(before[m.Key]) > 0 {
			wantEvents(t, bus, m.Key, before[m.Key])
			continue
		}
		// A bus that sends one batch at a time may not have sent this message before.
		if got := read(t, bus, m.Key); len(got) != 1 || got[0].ID != m.ID {
			t.Errorf("the bus holds %v of %s, want it once", got, m.Key)
		}
	}
	all.none()
}

// testFreeze verifies that a frozen bus doesn't delay a completion forever.
func testFreeze(t *testing.T, bus Bus) {
	need(t, bus.Freeze != nil, "way to freeze it")
	p := openImpatient(t, bus)
	bus.Freeze(t)
	all := newCompletions(t)
	m := Object{Name: "web", Version: 1}.Message(t, 0)
	p.Publish(t.Context(), m, all.of(m))
	if c := all.wait(1)[0]; c.err == nil {
		t.Error("a frozen bus acknowledged")
	}
	bus.Thaw(t)
	position := publishUntilStored(t, p, m)
	wantEvents(t, bus, m.Key, []Event{{m.ID, position, string(m.Data)}})
	all.none()
}

func testReady(t *testing.T, bus Bus) {
	need(t, bus.Kill != nil, "way to kill it")
	p := open(t, bus)
	bus.Kill(t)
	poll.Holds(t, "unready", func() bool { return p.Ready() != nil })
	if _, err := publishNow(t, p, Object{Name: "web", Version: 1}.Message(t, 0)); err == nil {
		t.Error("published to a bus that was killed")
	}
	bus.Start(t)
	poll.Holds(t, "ready", func() bool { return p.Ready() == nil })
	mustPublish(t, p, Object{Name: "web", Version: 1}.Message(t, 0))
}
