package stream

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	loadBatch = 10_000          // messages per request, about 8 MB of headers
	loadIdle  = 2 * time.Second // time without a message after which the load asks the server how many are pending

	// The server chooses a random replica for a consumer. With five replicas, one load in 200,000
	// gets no consumer on the leader in this many attempts.
	consumerAttempts = 55

	consumerTimeout  = 5 * time.Second  // for one attempt
	consumerPatience = 10 * time.Second // for all attempts
	forgetTimeout    = time.Second
)

// Load calls take with the last message of each subject that matches the filter. A message might lack
// its data. If purged is not nil, Load also calls purged with each subject that it has passed to take
// and for which the leader then has no message. Load returns the number of messages that the consumer
// delivered. An error of take or purged ends the load.
//
// If the stream leader holds messages of a subject during the whole load, Load calls take with the subject's
// last message as of the start, or with a later one. It does not call purged with the subject. Load can call
// take again, with a later message. If the connection breaks or a message is lost in transit, Load returns an
// error. It never ends early without an error.
//
// The messages come from the replica that is the leader when Load starts, because a follower can be
// behind. A follower can also permanently hold other messages at the same sequence numbers. This
// happens in nats-server 2.15 after most replicas lost the end of the stream: a replica that has
// more than the new leader keeps its messages.
func (c *Conn) Load(ctx context.Context, filter string, take func(*Message) error, purged func(subject string) error) (received uint64, err error) {
	l := &loading{c: c, filter: filter, take: take, purged: purged, seen: map[string]bool{}}
	err = l.load(ctx)
	return l.received, err
}

func (l *loading) load(ctx context.Context) (err error) {
	ctx, cancel := l.c.untilStop(ctx)
	defer cancel()
	select {
	case l.c.loads <- struct{}{}:
		defer func() { <-l.c.loads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	l.c.Opts.Reading.Begin()
	defer l.c.Opts.Reading.End()
	if l.consumer, err = l.c.consumeLeader(ctx, l.filter); err != nil {
		return err
	}
	l.c.metrics.reads.Inc()
	if l.consumer == nil { // readMissing reads every message
		l.c.log.Warn("cannot create a consumer on the stream leader, reading messages one by one", "stream", l.c.Opts.Stream)
		return l.readMissing(ctx)
	}
	defer l.c.forget(ctx, l.consumer)
	if err := l.run(ctx); err != nil {
		return err
	}
	return l.readMissing(ctx)
}

// consumeLeader creates a consumer for the last message of each subject, on the stream leader. It
// returns nil if it gets no such consumer within consumerPatience and consumerAttempts.
func (c *Conn) consumeLeader(ctx context.Context, filter string) (jetstream.Consumer, error) {
	began := time.Now()
	for n := 0; n < consumerAttempts && time.Since(began) < consumerPatience; n++ {
		stream, err := c.FindStream(ctx)
		if err != nil {
			return nil, err
		}
		consumer, err := c.consume(ctx, filter)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && c.PermissionError() == nil:
			continue
		case err != nil:
			return nil, err
		}
		on := consumer.CachedInfo().Cluster
		if stream.Cluster == nil || on == nil || on.Leader == stream.Cluster.Leader {
			return consumer, nil
		}
		c.forget(ctx, consumer)
	}
	return nil, nil
}

// consume creates a consumer for the last message of each subject, on any server.
func (c *Conn) consume(ctx context.Context, filter string) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, consumerTimeout)
	defer cancel()
	return c.JS.CreateConsumer(ctx, c.Opts.Stream, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject:     filter,
		HeadersOnly:       true,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute, // if forget fails, the server deletes the consumer after this time
	})
}

// forget deletes the consumer before its InactiveThreshold has passed.
func (c *Conn) forget(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	_ = c.JS.DeleteConsumer(ctx, c.Opts.Stream, consumer.CachedInfo().Name) // on an error, the server deletes the consumer later
}

// loading is the state of one call of [Conn.Load].
type loading struct {
	c        *Conn
	filter   string
	consumer jetstream.Consumer
	take     func(*Message) error // called with each message
	purged   func(string) error   // called with each subject whose messages were purged; may be nil

	received uint64          // number of messages; a gap in the server's numbering reveals a lost message
	seen     map[string]bool // subjects of the received messages; true if the leader's list has the subject
}

func (l *loading) run(ctx context.Context) error {
	messages, err := l.c.Pull(l.consumer, loadBatch, 0)
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	pending := l.consumer.CachedInfo().NumPending
	l.c.Opts.Reading.Left(0, int64(pending))
	idleAt := uint64(0) // pending at the last timeout, or 0 if a message has arrived since then
	for pending > 0 && pending != idleAt {
		msg, meta, err := messages.Next(loadIdle)
		switch {
		case err == nil:
			pending, err = l.receive(msg, meta)
			idleAt = 0
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, natsgo.ErrTimeout):
			before := pending
			if pending, err = l.left(ctx); pending == before {
				idleAt = pending // no more messages will arrive, see readMissing
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receive handles one message. It returns the number of pending messages that the server reports
// with it.
func (l *loading) receive(msg *Message, meta *natsgo.MsgMetadata) (pending uint64, err error) {
	if meta.Sequence.Consumer != l.received+1 {
		return 0, fmt.Errorf("got message %d after message %d", meta.Sequence.Consumer, l.received)
	}
	l.received = meta.Sequence.Consumer
	l.seen[msg.Subject] = false
	l.c.Opts.Reading.Left(int64(l.received), int64(meta.NumPending))
	return meta.NumPending, l.take(msg)
}

// left asks the server for the number of pending messages after a timeout, because pending messages
// might have been purged.
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

// readMissing compares the received messages with the leader's list of subjects. It reads missing
// messages, and reports subjects that were purged during the load. The consumer alone is not
// sufficient:
//
//   - If an object is written repeatedly during the load, each message can be replaced before the
//     consumer delivers it. The load still ends, because the number of pending messages reaches 0.
//   - nats-server 2.15 removes a message from its list of last messages before it looks for a
//     receiver. It drops the message if it finds none, for example during a reconnect
//     (consumer.go, getNextMsg and loopAndGatherMsgs). The message numbers do not reveal the loss.
//   - A message that is deleted from the stream before its delivery might count as pending forever.
//
// The list has every subject that exists during the whole load, so readMissing finds every message
// that the consumer did not return. But a subject that is not in the list can still exist, if it was
// first written during the load, or purged and written again. So readMissing reads the last message of
// such a subject before it reports the subject as purged.
func (l *loading) readMissing(ctx context.Context) error {
	var missing []string
	err := l.c.Subjects(ctx, l.filter, func(subject string) {
		if _, ok := l.seen[subject]; ok {
			l.seen[subject] = true
		} else {
			missing = append(missing, subject)
		}
	})
	if err != nil {
		return err
	}
	for _, subject := range missing {
		if _, err := l.takeLast(ctx, subject); err != nil {
			return err
		}
	}
	if l.purged == nil {
		return nil
	}
	for subject, listed := range l.seen {
		if listed || !utf8.ValidString(subject) { // a request cannot name a subject that is not valid UTF-8
			continue
		}
		exists, err := l.takeLast(ctx, subject)
		if err == nil && !exists {
			err = l.purged(subject)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeLast passes the last message of a subject to take, and reports whether the leader has one.
func (l *loading) takeLast(ctx context.Context, subject string) (exists bool, err error) {
	last, err := l.c.GetMessage(ctx, LastRequest(subject))
	if err != nil || last == nil {
		return false, err
	}
	return true, l.take(last)
}
