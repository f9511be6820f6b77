// Package loglimit limits the number of warnings per cause, so that a fault that affects a thousand
// objects doesn't write a thousand lines every few seconds.
//
// The package guarantees that the first warnings of a cause are written unchanged. After that, it
// writes one line at the end of each interval. The line is the last warning, with the number of
// omitted warnings in the attribute "suppressed". The lines and these numbers add up to the number
// of warnings. Records of all other levels, including errors, are always written. The memory is
// bounded.
//
// The package can't distinguish two faults with the same message and the same innermost error.
package loglimit

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"
)

const (
	burst     = 5                // warnings of a cause that are written unchanged
	interval  = 10 * time.Second // between two lines of a cause after that
	maxCauses = 1000             // number of causes that are distinguished; the others share one
)

// Handler is a [slog.Handler] that limits the records that another handler writes. Make one with
// [New].
type Handler struct {
	next   slog.Handler
	attrs  []slog.Attr // attributes of every record of this handler
	limits *limits     // shared with derived handlers
}

var _ slog.Handler = (*Handler)(nil)

// New returns a Handler that writes to next.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, limits: &limits{seed: maphash.MakeSeed(), causes: map[uint64]*cause{}, kinds: map[string]int{}}}
}

// Enabled implements [slog.Handler].
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler]. It writes a record or counts it.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn || h.limits.pass(h, r) {
		return h.next.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements [slog.Handler]. The new handler has the same limits.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	all := append(append([]slog.Attr(nil), h.attrs...), attrs...)
	return &Handler{next: h.next.WithAttrs(attrs), attrs: all, limits: h.limits}
}

// WithGroup implements [slog.Handler]. The new handler has the same limits.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), attrs: h.attrs, limits: h.limits}
}

// Flush immediately writes the lines that are due at the end of the interval. Call it at the end of
// the process.
func (h *Handler) Flush() { h.limits.flush() }

// limits holds the causes with recent warnings.
type limits struct {
	seed maphash.Seed

	mu     sync.Mutex
	causes map[uint64]*cause
	kinds  map[string]int // number of causes of each message
}

type cause struct {
	message string
	written int          // number of warnings written unchanged
	counted int          // number of warnings counted in this interval
	last    slog.Record  // the last warning that was counted
	to      slog.Handler // the handler of last
	end     *time.Timer  // fires at the end of the interval
}

// pass reports whether to write a record. If not, it counts the record.
func (l *limits) pass(h *Handler, r slog.Record) bool {
	of, shared := keys(h.attrs, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	key := maphash.String(l.seed, of)
	c := l.causes[key]
	if c == nil && shared && l.kinds[r.Message] >= maxKinds { // each object has its own error
		key = maphash.String(l.seed, r.Message)
		c = l.causes[key]
	}
	if c == nil && len(l.causes) >= maxCauses {
		key = 0
		c = l.causes[key]
	}
	if c == nil {
		c = &cause{message: r.Message}
		c.end = time.AfterFunc(interval, func() { l.ended(key, c) })
		l.causes[key] = c
		l.kinds[c.message]++
	}
	if c.written < burst {
		c.written++
		return true
	}
	c.counted++
	c.last, c.to = r.Clone(), h.next
	return false
}

// ended logs the summary of an interval and begins the next interval. If no warning was counted in
// the interval, it forgets the cause.
func (l *limits) ended(key uint64, c *cause) {
	l.mu.Lock()
	write := c.take()
	if write == nil {
		delete(l.causes, key)
		if l.kinds[c.message]--; l.kinds[c.message] == 0 {
			delete(l.kinds, c.message)
		}
	} else {
		c.end.Reset(interval)
	}
	l.mu.Unlock()
	if write != nil {
		write()
	}
}

func (l *limits) flush() {
	l.mu.Lock()
	var writes []func()
	for _, c := range l.causes {
		if write := c.take(); write != nil {
			writes = append(writes, write)
		}
	}
	l.mu.Unlock()
	for _, write := range writes {
		write()
	}
}

// take returns a function that writes the line of the interval, or nil if nothing was counted. The caller
// holds the lock.
func (c *cause) take() (write func()) {
	if c.counted == 0 {
		return nil
	}
	r, to := c.last, c.to
	if others := c.counted - 1; others > 0 {
		r.AddAttrs(slog.Int("suppressed", others))
	}
	c.counted, c.last, c.to = 0, slog.Record{}, nil
	return func() { _ = to.Handle(context.Background(), r) } // no caller can receive the error
}
