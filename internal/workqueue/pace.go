package workqueue

import "time"

// pace throttles low-priority keys while objects change: it makes them rest after each short burst of
// events. Without these rests, the events of a first sync take all CPU time of the forwarder, the bus,
// and the readers, and delay changes.
//
// Only keys whose events are published count, so a first sync that finds everything on the bus does
// not rest. The length of a burst doesn't depend on the latency of the bus.
type pace struct {
	on      bool
	changed time.Time // when a normal key was last handed out
	begun   time.Time // when the burst began; the zero value before its first event
	resting bool
}

const (
	// recently is the period after a change in which another change is likely.
	recently = time.Second
	// A change that arrives during a burst waits up to burst longer. The ratio of burst to rest
	// determines the share of CPU time for low-priority keys.
	burst = 300 * time.Microsecond
	rest  = 3 * time.Millisecond
)

// published records that the event of a low-priority key is published. It reports whether a rest
// begins.
func (p *pace) published(now time.Time) bool {
	switch {
	case !p.on || p.resting || now.Sub(p.changed) > recently:
		return false
	case p.begun.IsZero() || now.Sub(p.begun) > burst+rest: // the previous burst ended by itself
		p.begun = now
		return false
	case now.Sub(p.begun) < burst:
		return false
	}
	p.begun, p.resting = time.Time{}, true
	return true
}
