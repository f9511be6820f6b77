package reader

import (
	"context"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Subscribe calls yield with the events on the bus, in the order of their positions. It stops when
// ctx ends, or when yield returns an error, which Subscribe returns unchanged. It sets ID, Key,
// Marker, Attributes, and Data of a message.
//
// Subscribe neither misses nor repeats events, even if the connection breaks or the server restarts:
// it continues after the last event that it yielded. It reads a recreated stream from its start. It
// does not yield events that the stream dropped in the meantime (the stream keeps
// KUBERELAY_NATS_HISTORY events per object), or acknowledged events that the stream lost.
//
// Subscribe waits for an unreachable server and for a stream that does not exist. Until it has begun
// to read, an error that a retry cannot fix ([ErrMisconfigured]) ends it. After that, it keeps
// retrying.
func (b *Bus) Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
	if len(o.Filters) == 0 {
		o.Filters = []string{b.conn.Opts.Subjects()}
		if b.conn.Opts.Cluster != "" {
			o.Filters[0] = subject.Cluster(b.conn.Opts.SubjectPrefix, b.conn.Opts.Cluster)
		}
	}
	s := subscription{b: b, opts: o, yield: yield}
	return s.run(ctx)
}
