package workqueue

import "time"

// window limits the low-priority keys in flight to a number that keeps the bus busy without a queue
// of messages on the bus. A bus processes messages in order, so a change waits behind the messages
// in flight.
//
// As in TCP Vegas, the size of the window depends on the time from a publish to its
// acknowledgement. It grows while the shortest time of a round is near the base time, and shrinks
// when every message of a round has waited. It ignores the times of single messages, because they
// vary too much. The base time is the shortest time of the last two periods, because the latency of
// the bus can change.
type window struct {
	delay    time.Duration // how long messages may wait on the bus; 0 for a fixed window
	max      float64
	size     float64
	waited   bool             // messages have waited, so the window grows slowly
	shortest [2]time.Duration // in this period and in the previous period; 0 for none
	begun    time.Time        // when this period began
	round    round
}

// round covers about as many acknowledgements as there were keys in flight at its start.
type round struct {
	left     int64
	shortest time.Duration
	used     int64 // the highest number of keys in flight
}

const (
	minWindow    = 4 // so small that no messages queue on the bus
	windowPeriod = 10 * time.Second
)

func newWindow(keys int, delay time.Duration) window {
	w := window{delay: delay, max: float64(keys), size: float64(keys)}
	if delay > 0 {
		w.size = min(minWindow, w.max)
	}
	return w
}

func (w *window) keys() int64 { return int64(w.size) }

// acknowledged records the time from a publish to its acknowledgement. used is the number of keys
// in flight, including this one.
func (w *window) acknowledged(took time.Duration, used int64, now time.Time) {
	if w.delay == 0 {
		return
	}
	if w.round.left <= 0 {
		w.round = round{left: used, shortest: took}
	}
	w.round.left--
	w.round.shortest, w.round.used = min(w.round.shortest, took), max(w.round.used, used)
	if w.round.left <= 0 {
		w.resize(w.base(w.round.shortest, now))
	}
}

// base records the shortest time of a round, and returns the shortest time of the last two periods.
func (w *window) base(took time.Duration, now time.Time) time.Duration {
	switch since := now.Sub(w.begun); {
	case since >= 2*windowPeriod:
		w.begun, w.shortest, w.waited = now, [2]time.Duration{took, took}, false
	case since >= windowPeriod:
		w.begun, w.shortest = now, [2]time.Duration{took, w.shortest[0]}
	}
	w.shortest[0] = min(w.shortest[0], took)
	return min(w.shortest[0], w.shortest[1])
}

// resize ends a round and adjusts the window.
func (w *window) resize(base time.Duration) {
	target := base + base/4 + w.delay
	switch {
	case w.round.shortest > target:
		w.waited = true
		w.size *= max(0.5, float64(target)/float64(w.round.shortest))
	case w.round.used < w.keys(): // a larger window would make no difference
	case w.waited:
		w.size++
	default:
		w.size *= 2
	}
	w.size = max(min(minWindow, w.max), min(w.size, w.max))
}
