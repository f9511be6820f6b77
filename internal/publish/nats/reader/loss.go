package reader

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// losses counts how often the stream lost messages. A message is not lost if a later message of its
// subject replaced it. The connection's supervisor observes the stream every few seconds.
type losses struct {
	mu      sync.Mutex
	seen    bounds
	heard   time.Time // when the response with these bounds arrived
	count   uint64
	changed chan struct{} // closed at the next loss
}

// bounds identify the stream and its end at one moment.
type bounds struct {
	created    time.Time
	last       uint64 // the last position; 0 for an empty stream, whose first message can have any position
	at         time.Time
	serverTime time.Time // when the server responded; zero from servers before 2.10
}

// observe records the state of the stream in a response. It returns the number of losses so far, and
// a channel that is closed at the next loss. It ignores a response whose state might be older than the
// recorded one: several requests can be in flight, and the server sets the time of a response after
// it has read the state.
func (l *losses) observe(info *jetstream.StreamInfo, asked, answered time.Time) (count uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.changed == nil:
		l.changed = make(chan struct{})
	case info.TimeStamp.Before(l.seen.serverTime) || asked.Before(l.heard):
		return l.count, l.changed
	case l.seen.lost(info, asked):
		l.count++
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.seen = bounds{created: info.Created, at: asked.Round(0), serverTime: info.TimeStamp} // Round drops the monotonic clock, which stops while the machine is suspended
	l.heard = answered
	if info.State.Msgs > 0 {
		l.seen.last = info.State.LastSeq
	}
	return l.count, l.changed
}

// lost reports whether a subscription that has read the stream up to b might have missed messages.
func (b bounds) lost(info *jetstream.StreamInfo, at time.Time) bool {
	return lost(b.created, b.last, info) || at.Round(0).Sub(b.at) > publish.MaxAway
}

// lost reports whether the stream was recreated, lost its end, or lost every message up to its
// former end. The forwarder never causes the last case, because the markers of a cluster outlive all
// other messages.
func lost(created time.Time, last uint64, info *jetstream.StreamInfo) bool {
	return !info.Created.Equal(created) || info.State.LastSeq < last || last > 0 && info.State.FirstSeq > last
}

// onLoss calls stop at the next loss, unless the caller calls end first.
func (s *subscription) onLoss(stop func()) (end func()) {
	var watching sync.WaitGroup
	ended := make(chan struct{})
	watching.Go(func() {
		select {
		case <-s.loss:
			stop()
		case <-ended:
		}
	})
	return func() { close(ended); watching.Wait() }
}

// caughtUp calls CaughtUp the first time that no messages are pending. It also checks the positions,
// because the replica that reports the number of pending messages can be behind a replica that sent
// a message earlier.
func (s *subscription) caughtUp(pending uint64) error {
	if s.opts.CaughtUp == nil || s.caught || pending > 0 || s.seen < s.reached {
		return nil
	}
	s.caught = true
	position := max(s.seen, s.end) // no matching message is between seen and end
	return s.opts.CaughtUp(publish.Cursor{Stream: s.created, Positions: map[publish.Log]uint64{{}: position}})
}
