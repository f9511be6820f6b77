// Package longwork reports the progress of long-running work and estimates the time left.
//
// Code that does long work updates a [Counter], or provides a function that measures its
// progress. A [Tracker] reads the progress at each [Tracker.Sample] and on request. Updating a counter costs
// one atomic addition.
//
// A counter never blocks. The time left is only an estimate from the speed of the last 30 seconds.
package longwork

import (
	"context"
	"sync/atomic"
	"time"
)

// Amount is the progress of a piece of work.
type Amount struct {
	Done, Total int64 // Total is 0 if it is unknown
	Growing     bool  // Total can still grow
}

// Counter counts the progress of work. Its methods can be called concurrently. On a nil Counter, the
// methods that change it do nothing.
type Counter struct {
	running     atomic.Int64 // calls of Begin without End
	done, total atomic.Int64
}

// Begin begins a piece of work, and End ends it. Several pieces can run at the same time. If no other
// piece is running, Begin sets the counter to 0.
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

// Expect adds n to the total.
func (c *Counter) Expect(n int64) {
	if c != nil {
		c.total.Add(n)
	}
}

// Add adds n to the amount that is done.
func (c *Counter) Add(n int64) {
	if c != nil {
		c.done.Add(n)
	}
}

// Left sets the amounts that are done and left, for work whose total changes.
func (c *Counter) Left(done, left int64) {
	if c != nil {
		c.total.Store(done + left)
		c.done.Store(done)
	}
}

// Measure returns the progress, and false if no work is running.
func (c *Counter) Measure() (Amount, bool) {
	if c == nil || c.running.Load() <= 0 {
		return Amount{}, false
	}
	return Amount{Done: c.done.Load(), Total: c.total.Load()}, true
}

// Stalls waits until nothing has been done for an interval, and returns true. It returns false if ctx
// ends first.
func (c *Counter) Stalls(ctx context.Context, interval time.Duration) bool {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
		now, _ := c.Measure()
		if now.Done == before {
			return true
		}
		before = now.Done
	}
}
