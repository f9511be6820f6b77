// Package longwork says how far long work has come, and how long it will take.
//
// Whoever works long has a [Counter], or a function that measures the work from what is known
// anyway. A [Tracker] looks at both once a second, and at every question about it. So work that
// is not looked at costs an addition to an atomic number, or nothing.
//
// What it guarantees: a counter never blocks. What it does not: an estimate is that of the speed
// of the last half minute, and no promise.
package longwork

import "sync/atomic"

// Amount is how far a piece of work has come.
type Amount struct {
	Done, Total int64 // Total is 0 if it is not known
	Growing     bool  // Total is what is known so far
}

// Counter counts a piece of work. Its methods may be called concurrently, and do nothing on nil.
type Counter struct {
	running     atomic.Int64 // calls of Begin without End
	done, total atomic.Int64
}

// Begin begins a piece of work, and End ends it. Work may consist of several pieces at one time.
func (c *Counter) Begin() {
	if c != nil && c.running.Add(1) == 1 {
		c.done.Store(0)
		c.total.Store(0)
	}
}

// End ends a piece of work.
func (c *Counter) End() {
	if c != nil {
		c.running.Add(-1)
	}
}

// Expect adds to what is to be done.
func (c *Counter) Expect(n int64) {
	if c != nil {
		c.total.Add(n)
	}
}

// Add adds to what is done.
func (c *Counter) Add(n int64) {
	if c != nil {
		c.done.Add(n)
	}
}

// Left sets what is done and what is left to do, for work whose end moves.
func (c *Counter) Left(done, left int64) {
	if c != nil {
		c.total.Store(done + left)
		c.done.Store(done)
	}
}

// Measure returns how far the work has come. It is false if there is none.
func (c *Counter) Measure() (Amount, bool) {
	if c == nil || c.running.Load() <= 0 {
		return Amount{}, false
	}
	return Amount{Done: c.done.Load(), Total: c.total.Load()}, true
}
