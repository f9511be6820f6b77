package nats

import (
	"context"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// Load reads the last event of every object of the cluster and yields its checkpoint entry. It uses
// only headers, and skips markers.
//
// If the stream leader holds events of an object during the whole load, Load yields the object's
// last event as of the start, or a later one. If the object is written or purged meanwhile, Load
// can yield it again: with a later position, or with the zero value if the leader reports that the
// object has no events. The last call for an object is authoritative. If the connection breaks or a
// message is lost in transit, Load returns an error. It never ends early without an error. It
// returns an error of yield unchanged.
//
// All messages come from the replica that is the leader when Load starts.
//
// For a message that is not a Kuberelay event, for example one that was published by hand, Load
// yields only the position. The state of the object can then be published after that position.
func (b *Bus) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	l := loading{b: b, yield: yield}
	received, err := b.conn.Load(ctx, subject.Cluster(b.opts.SubjectPrefix, b.opts.Cluster), l.yieldStored, l.yieldPurged)
	switch {
	case err != nil && l.yieldErr != nil:
		return l.yieldErr
	case err != nil:
		return fmt.Errorf("load the checkpoint, after %d events: %w", received, err)
	}
	return nil
}

// loading is the state of one call of Load.
type loading struct {
	b        *Bus
	yield    func(event.Key, event.Acked) error
	yieldErr error
}

// yieldPurged yields the zero value for a purged subject.
func (l *loading) yieldPurged(purged string) error {
	_, _, key, marker, err := subject.Parse(purged)
	if err != nil || marker {
		return nil //nolint:nilerror // yieldStored skipped it too
	}
	l.yieldErr = l.yield(key, event.Acked{})
	return l.yieldErr
}

// yieldStored yields a message, unless it is a marker.
func (l *loading) yieldStored(s *stream.Message) error {
	_, _, key, marker, err := subject.Parse(s.Subject)
	if err != nil {
		l.b.opts.Invalid.Report("", s.Sequence, event.Invalid(event.InvalidKey, err), "subject", s.Subject)
		return nil
	}
	if marker {
		return nil
	}
	acked, err := s.Acked()
	if err != nil {
		l.b.opts.Invalid.Report("", s.Sequence, err, "subject", s.Subject)
	}
	l.yieldErr = l.yield(key, acked)
	return l.yieldErr
}
