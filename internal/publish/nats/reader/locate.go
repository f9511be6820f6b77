package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// locate looks up the stream and determines the position to continue at.
func (s *subscription) locate(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, s.b.conn.Opts.AckTimeout)
	defer cancel()
	asked := time.Now()
	info, err := s.b.conn.FindStream(timed)
	if err != nil {
		if errors.Is(err, ErrStreamMissing) {
			_ = s.b.conn.Check(timed) // makes the bus not ready until the stream exists
		}
		return err
	}
	end := info.State.LastSeq
	losses, loss := s.b.losses.observe(info, asked, time.Now())
	switch {
	case !s.started:
		s.losses, s.loss = losses, loss
		switch {
		case s.opts.From == publish.FromCursor:
			if err := s.resume(info); err != nil {
				return err
			}
		case s.opts.From == publish.FromLast:
			if s.until, err = s.lastPosition(timed); err != nil {
				return err
			}
			s.end = end
		case s.opts.From == publish.FromNow && !s.missing:
			s.seen = end
		}
		s.started = true
	case s.opts.UntilLost && (losses != s.losses || end < s.seen || !info.Created.Equal(s.created)):
		return s.lost()
	case !info.Created.Equal(s.created): // the stream was recreated
		s.seen, s.until, s.end, s.reached = 0, 0, 0, 0
	case end < s.seen: // the server lost acknowledged messages
		s.seen = end
		s.until, s.reached = min(s.until, end), end
	}
	s.created = info.Created
	return nil
}

// lastPosition returns the position of the last message that matches a filter. It asks the stream
// leader, because the consumer's replica might be behind the leader.
func (s *subscription) lastPosition(ctx context.Context) (last uint64, err error) {
	for _, filter := range s.opts.Filters {
		position, err := s.b.conn.LastPosition(ctx, filter)
		if err != nil {
			return 0, err
		}
		last = max(last, position)
	}
	return last, nil
}

// idle is called when the consumer has no message to deliver. The subscription might wait for messages that
// were removed from the stream, for example by a purge. So idle asks the stream leader whether a message
// is left, unless the subscription waits only for new messages. done reports whether the snapshot of the
// last messages is complete, or CaughtUp failed.
func (s *subscription) idle(ctx context.Context, last bool) (done bool, err error) {
	if !last && (s.opts.CaughtUp == nil || s.caught) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.b.conn.Opts.AckTimeout)
	defer cancel()
	switch end, err := s.lastPosition(ctx); {
	case err != nil || end > s.seen: // the consumer's replica might be behind the leader
		return false, err
	case last:
		s.until = s.seen
		return true, nil
	}
	s.failure = s.caughtUp(0)
	return s.failure != nil, s.failure
}

// resume sets the position to that of the cursor. If the stream has lost messages since then,
// resume sets the position to 0, or returns an error if UntilLost is set.
func (s *subscription) resume(info *jetstream.StreamInfo) error {
	c := s.opts.Cursor
	s.seen = c.Positions[publish.Log{}]
	if lost(c.Stream, s.seen, info) {
		if s.opts.UntilLost {
			return s.lost()
		}
		s.seen = 0
	}
	return nil
}

func (s *subscription) lost() error {
	return fmt.Errorf("stream %q: %w", s.b.conn.Opts.Stream, publish.ErrLost)
}
