// Package publishtest is the contract of [publish.Publisher] as tests. Every bus
// passes them, on the real thing: see [Run].
//
// No test sleeps or asserts a time; every wait has a bound, which only a failure
// reaches.
package publishtest

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Bus is one bus under test, empty at first. A nil function means that the bus
// cannot do it, and the tests that need it are skipped.
type Bus struct {
	// Open makes a publisher of the cluster [Cluster]; it is called again where a test
	// needs a second writer. It has room for at least 1,000 messages in flight, and
	// waits for an acknowledgement for so long that none is given up on a slow
	// machine; but for about a second only if impatient, so that a forced loss does
	// not take long.
	Open func(t *testing.T, impatient bool) publish.Publisher

	// Read gives every event of an object that the bus holds, oldest first.
	Read func(t *testing.T, k event.Key) []Event

	// CompareAndSet says that the bus refuses a message whose Expected is wrong.
	CompareAndSet bool

	// Exclusive says that there is one writer at a time: Open takes over, and the bus
	// refuses the publisher before it from then on.
	Exclusive bool

	// TooLarge is a size of data in bytes that the bus refuses, 0 if it takes all.
	TooLarge int

	// Kill ends the bus without warning, as kill -9 does, and Start starts it
	// again, with what it had stored.
	Kill, Start func(t *testing.T)

	// Mute lets the bus take messages whose acknowledgements never arrive, and
	// Unmute ends that.
	Mute, Unmute func(t *testing.T)

	// Freeze lets the bus take nothing and answer nothing, without breaking a
	// connection, and Thaw ends that.
	Freeze, Thaw func(t *testing.T)

	// Purge removes all events of an object, as an operator might.
	Purge func(t *testing.T, k event.Key)
}

// Event is an event as the bus holds it.
type Event struct {
	ID       string
	Position uint64
	Data     string
}

// Run runs the contract's tests, each on a bus of its own.
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

// open opens a publisher, waits until it is ready and closes it with the test.
func open(t *testing.T, bus Bus) publish.Publisher {
	t.Helper()
	return ready(t, bus.Open(t, false))
}

// openImpatient is for tests that lose acknowledgements. On a slow machine others
// get lost with them.
func openImpatient(t *testing.T, bus Bus) publish.Publisher {
	t.Helper()
	return ready(t, bus.Open(t, true))
}

func ready(t *testing.T, p publish.Publisher) publish.Publisher {
	t.Helper()
	t.Cleanup(func() { _ = p.Close() })
	eventually(t, "ready", func() bool { return p.Ready() == nil })
	return p
}

func need(t *testing.T, can bool, what string) {
	t.Helper()
	if !can {
		t.Skip("this bus has no " + what)
	}
}

// publishNow publishes one message and waits for its completion.
func publishNow(t *testing.T, p publish.Publisher, m *event.Message) (uint64, error) {
	t.Helper()
	c := newCompletions(t)
	p.Publish(t.Context(), m, c.of(m))
	r := c.wait(1)[0]
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

// publishUntilStored publishes as the forwarder's queue does: again and again
// until the bus has it.
func publishUntilStored(t *testing.T, p publish.Publisher, m *event.Message) uint64 {
	t.Helper()
	var position uint64
	eventually(t, "the event stored", func() (stored bool) {
		var err error
		position, err = publishNow(t, p, m)
		return err == nil
	})
	return position
}
