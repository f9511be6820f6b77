package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// ErrStreamMissing is in the chain of what [Bus.Ready] says with
// [Options.ReadOnly] while the stream does not exist.
var ErrStreamMissing = fmt.Errorf("the stream %w", publish.ErrMissing)

var errReadOnly = errors.New("the bus is open for reading only")

// Subscribe calls yield with the events on the bus, in the order of their
// positions, until ctx ends or yield fails, whose error is returned as it is. Of a
// message, ID, Key, Marker, Attributes and Data are filled in.
//
// It misses nothing and repeats nothing, however often the connection breaks or
// the server restarts: it goes on after the last event that it has yielded. A
// stream that was removed and made anew is read from its start. Where the stream
// dropped events while it was away (it keeps [Options.History] of each object), or
// lost acknowledged ones, these do not come.
//
// It waits for a server that cannot be reached and for a stream that does not
// exist. What waiting does not cure ([ErrMisconfigured]) ends it, unless events
// could be read before: then it goes on trying.
func (b *Bus) Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
	if len(o.Filters) == 0 {
		o.Filters = []string{b.opts.subjects()}
		if b.opts.Cluster != "" {
			o.Filters[0] = event.ClusterSubjects(b.opts.SubjectPrefix, b.opts.Cluster)
		}
	}
	s := subscription{b: b, opts: o, yield: yield}
	return s.run(ctx)
}

// findStream looks the stream up and neither creates nor checks it.
func (b *Bus) findStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	s, err := b.js.Stream(ctx, b.opts.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("look up stream %q: %w", b.opts.Stream, ErrStreamMissing)
	case err != nil:
		return nil, b.streamFailure(err)
	}
	return s.CachedInfo(), nil
}
