package reader

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// Progress returns how far a consumer of the stream has read. It ignores the log, because a stream
// is a single log. The error wraps [publish.ErrNoConsumer] if the consumer does not exist.
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
		Start: start(info),
	}
	if info.Config.FilterSubject != "" {
		p.Filters = []string{info.Config.FilterSubject}
	}
	return p, nil
}

// start returns which messages the consumer skips. The server counts them as acknowledged, because
// a consumer's ack floor starts directly before its first message. With the policy "last per
// subject", a consumer skips only messages that are no longer the last of their subject.
func start(info *jetstream.ConsumerInfo) publish.Start {
	switch c := info.Config; {
	case c.DeliverPolicy == jetstream.DeliverNewPolicy:
		return publish.Start{Time: info.Created, Why: "its deliver policy is new"}
	case c.DeliverPolicy == jetstream.DeliverLastPolicy:
		return publish.Start{Time: info.Created, Last: true, Why: "its deliver policy is last"}
	case c.DeliverPolicy == jetstream.DeliverByStartSequencePolicy:
		return publish.Start{Position: int64(c.OptStartSeq), Why: "its deliver policy is by_start_sequence"}
	case c.DeliverPolicy == jetstream.DeliverByStartTimePolicy && c.OptStartTime != nil:
		return publish.Start{Time: *c.OptStartTime, Why: "its deliver policy is by_start_time"}
	}
	return publish.Start{}
}
