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
// what the checkpoint should hold of it. It reads headers only. Snapshot markers
// are left out.
//
// It ends when it has yielded, of every object that the stream held when Load
// began and still holds, an event at least as late as its last one then. An object
// that is written meanwhile may be yielded again, with a later position: the last
// counts. If the connection breaks, or a message got lost on its way, it fails: it
// never ends early without an error. An error of yield ends it and is returned as it
// is.
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
	l := loading{b: b, consumer: consumer, yield: yield, seen: map[string]struct{}{}}
	if err = l.run(ctx); err == nil {
		err = l.readMissing(ctx)
	}
	if err != nil {
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

	received uint64              // messages so far; the server numbers them, so that a gap shows
	seen     map[string]struct{} // their subjects
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
	pending := l.consumer.CachedInfo().NumPending
	idleAt := uint64(0) // pending when none had come for a while, 0 if one came since
	for pending > 0 && pending != idleAt {
		msg, err := messages.Next(idle)
		switch {
		case err == nil:
			pending, err = l.take(msg)
			idleAt = 0
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, natsgo.ErrTimeout):
			before := pending
			if pending, err = l.left(ctx); pending == before {
				idleAt = pending // none will come: see readMissing
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take yields one message, and tells how many the server thinks are to come.
func (l *loading) take(msg jetstream.Msg) (pending uint64, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return 0, err
	}
	if meta.Sequence.Consumer != l.received+1 {
		return 0, fmt.Errorf("got message %d after message %d", meta.Sequence.Consumer, l.received)
	}
	l.received = meta.Sequence.Consumer
	l.seen[msg.Subject()] = struct{}{}
	return meta.NumPending, l.yieldStored(&stored{
		subject: msg.Subject(), sequence: meta.Sequence.Stream, time: meta.Timestamp, headers: msg.Headers(),
	})
}

// left asks the server how many messages are to come, since none came for a
// while: they may have been purged.
func (l *loading) left(ctx context.Context) (pending uint64, err error) {
	info, err := l.consumer.Info(ctx)
	if err != nil {
		return 0, err
	}
	if info.Delivered.Consumer != l.received {
		return 0, fmt.Errorf("the server delivered %d messages, %d arrived", info.Delivered.Consumer, l.received)
	}
	return info.NumPending, nil
}

// readMissing compares what came with the list of the subjects that there are, and
// reads what is missing. The consumer alone cannot be trusted with that:
//
//   - An object that is written while we read may have its last message replaced by
//     a later one each time before its turn comes. The count of pending messages,
//     which tells us when to stop, may then be 0 all the same.
//   - nats-server 2.15 takes a message off its list of last messages before it
//     looks for someone to give it to, and forgets it where nobody is there for a
//     moment, as while we connect again (consumer.go, getNextMsg and
//     loopAndGatherMsgs). It numbers the messages without it.
//   - A message that is deleted from the stream before its turn comes may stay
//     counted as pending for ever.
func (l *loading) readMissing(ctx context.Context) error {
	stream, err := l.b.js.Stream(ctx, l.b.opts.Stream)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(event.ClusterSubjects(l.b.opts.SubjectPrefix, l.b.opts.Cluster)))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		if _, ok := l.seen[subject]; ok {
			continue
		}
		last, err := l.b.getMessage(ctx, lastRequest(subject))
		if err == nil && last != nil { // purged otherwise
			err = l.yieldStored(last)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// yieldStored yields a message, unless it is a marker.
func (l *loading) yieldStored(s *stored) error {
	_, _, key, marker, err := event.ParseSubject(s.subject)
	if err != nil {
		l.b.log.Warn("the bus has a subject that is no object's", "err", err)
		return nil
	}
	if marker {
		return nil
	}
	acked := s.acked()
	if acked.UID == "" {
		l.b.log.Warn("a message on the bus is no event of ours", "subject", s.subject, "position", s.sequence)
	}
	l.yieldErr = l.yield(key, acked)
	return l.yieldErr
}
