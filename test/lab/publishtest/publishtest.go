// Package publishtest tests the contract of [publish.Publisher]. Every back end passes these tests
// on a real bus: see [Run].
//
// No test sleeps or asserts a duration. Every wait has a limit that only a failing test reaches.
package publishtest

import (
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// Bus is an empty bus under test. A nil function means that the bus doesn't support the operation.
// The tests that need the operation are then skipped.
type Bus struct {
	// Open creates a publisher for the cluster [Cluster]. Tests that need a second writer call Open
	// again. The publisher has room for at least 1,000 messages in flight. By default, it waits for
	// an acknowledgement long enough for a slow machine. If impatient is true, it waits about a
	// second, so that a forced loss doesn't take long.
	Open func(t *testing.T, impatient bool) publish.Publisher

	// Read returns all events of an object on the bus, oldest first.
	Read func(t *testing.T, k event.Key) []Event

	// CompareAndSet reports whether the bus refuses a message with a wrong Expected.
	CompareAndSet bool

	// Exclusive reports whether the bus allows only one writer at a time. Open takes over, and from
	// then on the bus refuses the former publisher.
	Exclusive bool

	// TooLarge is a data size in bytes that the bus refuses, or 0 if the size isn't limited.
	TooLarge int

	// Kill kills the bus as SIGKILL does. Start starts it again with the data that it had stored.
	Kill, Start func(t *testing.T)

	// Mute makes the bus accept messages without acknowledging them. Unmute ends the effect of Mute.
	Mute, Unmute func(t *testing.T)

	// Freeze makes the bus accept no messages and send no responses, without closing connections.
	// Thaw ends the effect of Freeze.
	Freeze, Thaw func(t *testing.T)

	// Purge removes all events of an object, as an operator might.
	Purge func(t *testing.T, k event.Key)
}

// Event is an event on the bus.
type Event struct {
	ID       string
	Position uint64
	Data     string
}

// Run runs the tests of the contract, each with its own bus.
func Run(t *testing.T, factory func(t *testing.T) Bus) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Bus)
	}{
		{"acknowledged once", testAcknowledged},
		{"markers", testMarkers},
		{"order of one object's events", testOrder},
		{"thousands in flight", testMany},
		{"context ended", testContext},
		{"too large", testTooLarge},
		{"too large, several at once", testTooLargeAtOnce},
		{"loaded", testLoaded},
		{"closed", testClosed},
		{"closed with messages in flight", testCloseInFlight},
		{"the same event again", testAgain},
		{"conflict", testConflict},
		{"conflict with nothing", testConflictNothing},
		{"purged in between", testPurged},
		{"early purges", testEarlyPurges},
		{"a stale writer", testStaleWriter},
		{"a writer that was taken over from", testTakenOver},
		{"bus killed and started again", testKill},
		{"acknowledgement lost", testMute},
		{"bus frozen", testFreeze},
		{"ready", testReady},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, factory(t)) })
	}
}

// open opens a publisher, waits until it is ready, and closes it at the end of the test.
func open(t *testing.T, bus Bus) publish.Publisher {
	t.Helper()
	return ready(t, bus.Open(t, false))
}

// openImpatient is open for tests that lose acknowledgements. The publisher gives up after about a
// second, so on a slow machine, other acknowledgements time out too.
func openImpatient(t *testing.T, bus Bus) publish.Publisher {
	t.Helper()
	return ready(t, bus.Open(t, true))
}

func ready(t *testing.T, p publish.Publisher) publish.Publisher {
	t.Helper()
	t.Cleanup(func() { _ = p.Close() })
	poll.Holds(t, "ready", func() bool { return p.Ready() == nil })
	return p
}

func need(t *testing.T, can bool, what string) {
	t.Helper()
	if !can {
		t.Skip("this bus has no " + what)
	}
}

// publishNow publishes one message and waits for its completion. An error must name the
// message once.
func publishNow(t *testing.T, p publish.Publisher, m *event.Message) (uint64, error) {
	t.Helper()
	c := newCompletions(t)
	p.Publish(t.Context(), m, c.of(m))
	r := c.wait(1)[0]
	if r.err != nil && (!strings.HasPrefix(r.err.Error(), "publish "+m.ID+": ") || strings.Count(r.err.Error(), "publish ") > 1) {
		t.Errorf("the error %q does not name message %s once", r.err, m.ID)
	}
	return r.position, r.err
}

func mustPublish(t *testing.T, p publish.Publisher, m *event.Message) uint64 {
	t.Helper()
	position, err := publishNow(t, p, m)
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	return position
}

// publishUntilStored repeats a publish until the bus has stored the message, as the forwarder's
// queue does.
func publishUntilStored(t *testing.T, p publish.Publisher, m *event.Message) uint64 {
	t.Helper()
	var position uint64
	poll.Holds(t, "the event stored", func() (stored bool) {
		var err error
		position, err = publishNow(t, p, m)
		return err == nil
	})
	return position
}
