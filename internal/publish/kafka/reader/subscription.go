package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// Subscribe calls yield with the events on the bus, in order within each partition. It stops when
// ctx ends, or when yield returns an error, which Subscribe returns unchanged. In each message,
// Subscribe sets ID, Key, Marker, Attributes, and Data. yield must not keep or change the message.
// A writer's marker has no key.
//
// Subscribe neither misses nor repeats events, except for recreated topics as described in the package
// comment. With [publish.FromLast], Subscribe reads the topics twice up to their current ends, and yields
// nothing for an object whose last record is a tombstone.
//
// Subscribe waits for unreachable brokers and for topics that do not exist. An error that a retry
// cannot fix ([ErrMisconfigured]) ends a subscription that has delivered no record. A subscription
// that has delivered records keeps retrying.
func (b *Bus) Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
	s := &subscription{
		b: b, target: target{opts: o, yield: yield, reached: map[publish.Log]uint64{}, topics: map[string]string{}}, known: map[publish.Log]context.CancelCauseFunc{},
		seen:  map[publish.Log]bounds{},
		ended: make(chan stopped), failed: make(chan struct{}, 1),
	}
	reading, cancel := context.WithCancel(ctx)
	defer s.workers.Wait()
	defer cancel()
	return s.run(reading)
}

const (
	pollEvery   = time.Second // interval between polls for new topics
	pollTimeout = 5 * time.Second
)

// subscription is the state of one call of Subscribe. Each partition has its own goroutine, which
// ends only with the subscription, or if the partition cannot be read. In the latter case, the next
// poll decides how to continue the partition.
type subscription struct {
	b       *Bus
	target  target
	workers sync.WaitGroup

	known   map[publish.Log]context.CancelCauseFunc // for each partition with a goroutine, the function that stops the goroutine
	started bool                                    // topics were found
	missing bool                                    // the first poll found no topic
	seen    map[publish.Log]bounds
	turn    int // index of the next topic to poll
	stopped []stopped

	ended  chan stopped  // from the goroutines of partitions
	failed chan struct{} // signals that yield or CaughtUp failed
}

// stopped is a partition whose goroutine ended with err. until is the argument of follow.
type stopped struct {
	p     *partition
	until int64
	err   error
}

func (s *subscription) run(ctx context.Context) error {
	for {
		err := s.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrMisconfigured) && s.target.isNew(), errors.Is(err, publish.ErrLost):
			return err
		}
		s.notify(err)
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// wait blocks until the next poll is due or the subscription ends.
func (s *subscription) wait(ctx context.Context) error {
	due := time.After(pollEvery)
	for {
		select {
		case <-due:
			return nil
		case e := <-s.ended:
			s.stopped = append(s.stopped, e)
		case <-s.failed:
			return s.target.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *subscription) notify(err error) {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	if s.target.opts.Notify != nil {
		s.target.opts.Notify(err)
	}
}

// poll starts to read new partitions and continues those that stopped. It returns an error if the
// brokers do not respond, if the read of a partition failed, or if records might be lost.
func (s *subscription) poll(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	topics, err := s.b.topics(timed)
	if err != nil {
		s.missing = s.missing || !s.started && errors.Is(err, errTopicMissing)
		return errors.Join(err, s.resume(ctx))
	}
	s.turn++
	var due []broker.Topic
	for i, t := range topics {
		// The client's list of partitions might be stale, so poll at least one topic.
		if s.hasNew(t) || i == s.turn%len(topics) {
			due = append(due, t)
		}
	}
	all, err := s.b.look(timed, due, s.since)
	if err != nil {
		return errors.Join(err, s.resume(ctx))
	}
	ends, begins := map[publish.Log]int64{}, map[publish.Log]int64{}
	for _, l := range all {
		for p, end := range l.offsets.End {
			log := publish.Log{Topic: l.topic, Partition: p}
			if err := s.observe(log, bounds{l.id, l.offsets.Start[p], end, time.Now().Round(0)}); err != nil {
				return err
			}
			ends[log] = end
		}
		for p, offset := range l.since {
			begins[publish.Log{Topic: l.topic, Partition: p}] = offset
		}
	}
	err = s.resume(ctx)
	if !s.started && s.target.opts.CaughtUp != nil {
		s.target.behind = map[publish.Log]bool{}
		for log := range ends {
			s.target.behind[log] = true
			s.target.topics[log.Topic] = s.seen[log].topic
		}
	}
	for log, end := range ends {
		if s.known[log] == nil {
			s.begin(ctx, log, begins[log], end)
		}
	}
	s.started = true
	return err
}

func (s *subscription) hasNew(t broker.Topic) bool {
	for p := range t.Partitions {
		if s.known[publish.Log{Topic: t.Name, Partition: p}] == nil {
			return true
		}
	}
	return false
}

// resume continues the partitions that stopped. It returns the reasons why they stopped.
func (s *subscription) resume(ctx context.Context) error {
	var why []error
	for _, e := range s.stopped {
		switch {
		case s.target.opts.UntilLost && (errors.Is(e.err, broker.ErrNoTopic) || errors.Is(e.err, broker.ErrPastEnd)):
			why = append(why, fmt.Errorf("%w: %w", publish.ErrLost, e.err))
		case errors.Is(e.err, broker.ErrNoTopic): // if the topic exists again later, it is a new one
			delete(s.known, e.p.log)
		case errors.Is(e.err, broker.ErrPastEnd):
			s.follow(ctx, s.b.newPartition(e.p.log, 0), 0)
		default:
			s.follow(ctx, e.p, e.until)
			why = append(why, e.err)
		}
	}
	s.stopped = nil
	return errors.Join(why...)
}

// since returns the first offset to read in each partition of a topic if the subscription is about to
// begin at a time ([publish.FromTime]). Otherwise, it returns nil. ends are the end offsets of the
// partitions. They are the result for partitions without a record from that time or later.
func (s *subscription) since(ctx context.Context, topic string, ends []int64) ([]int64, error) {
	if s.started || s.target.opts.From != publish.FromTime {
		return nil, nil
	}
	offsets, err := s.b.client.OffsetsSince(ctx, topic, s.target.opts.Since)
	for p := range offsets {
		if p < len(ends) && offsets[p] < 0 {
			offsets[p] = ends[p]
		}
	}
	return offsets, err
}

// begin starts to read a new partition. since and end are offsets of that partition.
func (s *subscription) begin(ctx context.Context, log publish.Log, since, end int64) {
	from, until := int64(0), int64(0)
	if !s.started {
		switch s.target.opts.From {
		case publish.FromLast:
			until = end
		case publish.FromNow:
			if !s.missing {
				from = end
			}
		case publish.FromTime:
			from = since
		case publish.FromCursor:
			if position, ok := s.target.opts.Cursor.Positions[log]; ok {
				from = publish.Offset(position) + 1
			}
		case publish.FromStart:
		}
	}
	p := s.b.newPartition(log, from)
	if s.target.opts.Past != nil {
		p = s.b.newPartition(log, 0)
		p.from, p.counted = from, from > 0
		if p.counted {
			s.b.opts.Reading.Begin()
		}
	}
	s.follow(ctx, p, until)
}

// follow reads a partition. Below the offset until, it delivers only the last record of each key.
// From there on, it delivers every record.
func (s *subscription) follow(ctx context.Context, p *partition, until int64) {
	reading, stop := context.WithCancelCause(ctx)
	s.known[p.log] = stop
	s.workers.Go(func() {
		defer stop(nil)
		var err error
		if p.next < p.from {
			err = p.readPast(reading, &s.target)
		}
		if err == nil && p.next < until {
			err = p.readLasts(reading, until, &s.target)
		}
		if err == nil && s.target.opts.CaughtUp != nil {
			err = p.catchUp(reading, &s.target)
		}
		if err == nil {
			err = p.follow(reading, &s.target)
		}
		err = cmp.Or(context.Cause(reading), err)
		switch {
		case ctx.Err() != nil:
		case s.target.hasFailed():
			select {
			case s.failed <- struct{}{}:
			default:
			}
		default:
			select {
			case s.ended <- stopped{p, until, fmt.Errorf("read %s, partition %d: %w", p.log.Topic, p.log.Partition, err)}:
			case <-ctx.Done():
			}
		}
	})
}
