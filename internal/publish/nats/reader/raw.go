package reader

import (
	"context"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// Raw is an undecoded message, as the stream stores it. A verifier decodes it with its own decoder.
type Raw struct {
	Subject  string
	Position uint64
	Stored   time.Time
	Header   map[string][]string
	Data     []byte
}

// SubscribeRaw is like [Bus.Subscribe], but yields undecoded messages. The filters must not be
// empty. SubscribeRaw ignores Foreign and Tombstone.
func (b *Bus) SubscribeRaw(ctx context.Context, o publish.SubscribeOptions, yield func(Raw) error) error {
	s := subscription{b: b, opts: o, raw: yield}
	return s.run(ctx)
}

// LoadRaw yields the last message of each subject that matches the filter. A message may lack its
// data. If LoadRaw yields a subject more than once, the last call counts. LoadRaw returns an error
// of yield unchanged.
func (b *Bus) LoadRaw(ctx context.Context, filter string, yield func(Raw) error) error {
	var failed error
	received, err := b.conn.Load(ctx, filter, func(m *stream.Message) error {
		failed = yield(rawOf(m))
		return failed
	}, nil)
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("read the last message of each subject: failed after %d messages: %w", received, err)
	}
	return nil
}

// LastRaw returns the last message of a subject from the stream leader, and reports whether the
// subject has a message.
func (b *Bus) LastRaw(ctx context.Context, subject string) (Raw, bool, error) {
	return b.getRaw(ctx, stream.LastRequest(subject))
}

// RawAt returns the message at a position from the stream leader, and reports whether the message
// still exists.
func (b *Bus) RawAt(ctx context.Context, position uint64) (Raw, bool, error) {
	return b.getRaw(ctx, stream.SequenceRequest(position))
}

func (b *Bus) getRaw(ctx context.Context, request []byte) (Raw, bool, error) {
	s, err := b.conn.GetMessage(ctx, request)
	if err != nil {
		return Raw{}, false, fmt.Errorf("read a message of stream %q: %w", b.conn.Opts.Stream, err)
	}
	if s == nil {
		return Raw{}, false, nil
	}
	return rawOf(s), true, nil
}

func rawOf(m *stream.Message) Raw {
	return Raw{Subject: m.Subject, Position: m.Sequence, Stored: m.Time, Header: map[string][]string(m.Headers), Data: m.Data}
}
