package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
)

const (
	loadBatch = 10_000          // messages asked for at a time, about 8 MB of headers
	loadIdle  = 2 * time.Second // without a message, before asking the server what is left
)

// Load reads the last event of every object of the cluster and calls yield with
// what the checkpoint should hold of it, in the order of positions. It reads
// headers only. Snapshot markers are left out.
//
// It ends when everything has been read: it has then seen, of every object that the
// stream held when Load began, an event at least as late as its last one then. An
// object that is written meanwhile may be yielded again, with a later position; the
// last counts. If the connection breaks, or a message got lost on its way, it
// fails: it never ends early without an error. An error of yield ends it and is
// returned as it is.
//
// A message that is no event of ours, say one published by hand to an object's
// subject, is yielded with its position only, so that the object's state can be
// published after it.
func (b *Bus) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	consumer, err := b.js.CreateConsumer(ctx, b.opts.Stream, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject:     event.ClusterSubjects(b.opts.SubjectPrefix, b.opts.Cluster),
		HeadersOnly:       true,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute, // the server forgets it, should we not get to remove it
	})
	if err != nil {
		return fmt.Errorf("load the checkpoint: %w", err)
	}
	defer b.forget(ctx, consumer)
	l := loading{b: b, consumer: consumer, yield: yield}
	if consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	if err := l.run(ctx); err != nil {
		if l.yieldErr != nil {
			return l.yieldErr
		}
		return fmt.Errorf("load the checkpoint, after %d events: %w", l.received, err)
	}
	return nil
}

// forget removes the consumer, so that it does not stay for a minute.
func (b *Bus) forget(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opts.AckTimeout)
	defer cancel()
	_ = b.js.DeleteConsumer(ctx, b.opts.Stream, consumer.CachedInfo().Name) // the server does it anyway
}

// loading is one run of Load.
type loading struct {
	b        *Bus
	consumer jetstream.Consumer
	yield    func(event.Key, event.Acked) error

	received uint64 // messages so far; the server numbers them, so that a gap shows
	yieldErr error
}

func (l *loading) run(ctx context.Context) error {
	messages, err := l.consumer.Messages(
		jetstream.PullMaxMessages(loadBatch), jetstream.PullThresholdMessages(loadBatch/2))
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	idle := jetstream.NextMaxWait(loadIdle)
	for {
		msg, err := messages.Next(idle)
		switch {
		case err == nil:
			last, err := l.take(msg)
			if last || err != nil {
				return err
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, natsgo.ErrTimeout):
			if end, err := l.isEnd(ctx); end || err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// take yields one message. It is the last when the server says that there is no
// other: every subject's last message has then been delivered, whatever was written
// in the meantime.
func (l *loading) take(msg jetstream.Msg) (last bool, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return false, err
	}
	if meta.Sequence.Consumer != l.received+1 {
		return false, fmt.Errorf("got message %d after message %d", meta.Sequence.Consumer, l.received)
	}
	l.received++
	if err := l.yieldMessage(msg, meta.Sequence.Stream); err != nil {
		l.yieldErr = err
		return false, err
	}
	return meta.NumPending == 0, nil
}

func (l *loading) yieldMessage(msg jetstream.Msg, position uint64) error {
	_, _, key, marker, err := event.ParseSubject(msg.Subject())
	if err != nil {
		l.b.log.Warn("the bus has a subject that is no object's", "err", err)
		return nil
	}
	if marker {
		return nil
	}
	s := stored{subject: msg.Subject(), sequence: position, headers: msg.Headers()}
	acked := s.acked()
	if acked.UID == "" {
		l.b.log.Warn("a message on the bus is no event of ours", "subject", msg.Subject(), "position", position)
	}
	return l.yield(key, acked)
}

// isEnd asks the server whether anything is left, since nothing came for a
// while: what was to come may have been purged.
func (l *loading) isEnd(ctx context.Context) (bool, error) {
	info, err := l.consumer.Info(ctx)
	switch {
	case err != nil:
		return false, err
	case info.Delivered.Consumer != l.received:
		return false, fmt.Errorf("the server delivered %d messages, %d arrived", info.Delivered.Consumer, l.received)
	}
	return info.NumPending == 0, nil
}
