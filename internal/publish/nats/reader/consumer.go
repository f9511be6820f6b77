package reader

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// Progress returns how far a consumer of the stream has read. It ignores the log, because a stream is a
// single log. The error has [publish.ErrNoConsumer] in its chain if there is no such consumer.
func (b *Bus) Progress(ctx context.Context, name string, _ publish.Log) (publish.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, b.conn.RequestTimeout())
	defer cancel()
	consumer, err := b.conn.JS.Consumer(ctx, b.conn.Opts.Stream, name)
	if err != nil {
		switch denied := b.conn.PermissionError(); {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrInvalidConsumerName):
			err = publish.ErrNoConsumer
		case denied != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, natsgo.ErrNoResponders)):
			err = denied
		}
		return publish.Progress{}, fmt.Errorf("look up the consumer of the stream %s: %w", b.conn.Opts.Stream, err)
	}
	info := consumer.CachedInfo()
	delivered := int64(info.Delivered.Stream)
	p := publish.Progress{
		Acknowledged: int64(info.AckFloor.Stream), Delivered: &delivered,
		Behind: int64(info.NumPending) + int64(info.NumAckPending), Filters: info.Config.FilterSubjects,
	}
	if info.Config.FilterSubject != "" {
		p.Filters = []string{info.Config.FilterSubject}
	}
	return p, nil
}
