package reader

import (
	"context"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// Raw is an undecoded message, as the stream stores it. A verifier decodes it with its own decoder.
type Raw = stream.Message

// SubscribeRaw is like [Bus.Subscribe], but yields undecoded messages. The filters must not be
// empty. SubscribeRaw ignores Foreign and Tombstone.
func (b *Bus) SubscribeRaw(ctx context.Context, o publish.SubscribeOptions, yield func(*Raw) error) error {
	s := subscription{b: b, opts: o, raw: yield}
	return s.run(ctx)
}

// LoadRaw yields the last message of each subject that matches the filter. A message might lack its
// data. If LoadRaw yields a subject more than once, the last call counts. LoadRaw returns an error
// of yield unchanged.
func (b *Bus) LoadRaw(ctx context.Context, filter string, yield func(*Raw) error) error {
	var failed error
	received, err := b.conn.Load(ctx, filter, func(m *stream.Message) error {
		failed = yield(m)
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

// LastRaw returns the last message of a subject from the stream leader, or nil if the subject has no
// message.
func (b *Bus) LastRaw(ctx context.Context, subject string) (*Raw, error) {
	return b.getRaw(ctx, stream.LastRequest(subject))
}

// RawAt returns the message at a position from the stream leader, or nil if the message no longer
// exists.
func (b *Bus) RawAt(ctx context.Context, position uint64) (*Raw, error) {
	return b.getRaw(ctx, stream.SequenceRequest(position))
}

func (b *Bus) getRaw(ctx context.Context, request []byte) (*Raw, error) {
	m, err := b.conn.GetMessage(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("read a message of stream %q: %w", b.conn.Opts.Stream, err)
	}
	return m, nil
}
