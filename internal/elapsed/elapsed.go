// Package elapsed measures the age of a moment on two clocks. The monotonic clock stops while the machine
// sleeps, and the wall clock can be set back.
package elapsed

import "time"

// Moment is a moment on both clocks.
type Moment struct{ Monotonic, Wall time.Time }

// At returns the moment of a time that has a monotonic reading.
func At(t time.Time) Moment { return Moment{t, t.Round(0)} }

// Age returns the time from the moment until now, on the clock on which more time has passed.
func (m Moment) Age(now time.Time) time.Duration {
	return max(now.Sub(m.Monotonic), now.Sub(m.Wall))
}
