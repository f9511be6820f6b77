package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// Subscribe calls yield with the events on the bus, those of one partition in their
// order, until ctx ends or yield fails, whose error is returned as it is. Of a
// message, ID, Key, Marker, Attributes and Data are filled in; it may not be kept or
// changed after yield has returned. A writer's marker has no key.
//
// It misses nothing and repeats nothing, but for what the package's comment says of
// topics that are deleted. With [publish.FromLast] the topics are read twice up to
// their present ends, and where the last record of an object is a tombstone nothing is
// yielded of it.
//
// It waits for brokers that cannot be reached and for topics that do not exist. What
// waiting does not cure ([ErrMisconfigured]) ends it, unless events could be read
// before: then it goes on trying.
func (b *Bus) Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
	s := &subscription{
		b: b, target: target{opts: o, yield: yield}, known: map[publish.Log]bool{},
		ended: make(chan stopped), failed: make(chan struct{}, 1),
	}
	reading, cancel := context.WithCancel(ctx)
	defer s.workers.Wait()
	defer cancel()
	return s.run(reading)
}

const (
	lookEvery = time.Second     // for topics that are new, and whether brokers answer
	lookLimit = 5 * time.Second // for the answer
)

// subscription is one run of Subscribe. Each partition has a goroutine, which ends only
// where its partition cannot be read; the next look decides how to go on.
type subscription struct {
	b       *Bus
	target  target
	workers sync.WaitGroup

	known   map[publish.Log]bool // partitions that have a goroutine
	begun   bool                 // topics were found: what follows is valid
	missing bool                 // there was no topic at first
	turn    int                  // of the topic that is asked for next
	stopped []stopped

	ended  chan stopped  // a partition's goroutine
	failed chan struct{} // has a token when yield has failed
}

// stopped is a partition that could not be read on, and why. Until is for follow.
type stopped struct {
	p     *partition
	until int64
	err   error
}

func (s *subscription) run(ctx context.Context) error {
	for {
		err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrMisconfigured) && s.target.isNew():
			return err
		}
		s.notify(err)
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// wait blocks until it is time for another look, or all is over.
func (s *subscription) wait(ctx context.Context) error {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
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

// look finds partitions that are new and begins to read them, goes on with those that
// have stopped, and tells whether the brokers answer.
func (s *subscription) look(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	topics, err := s.b.topics(timed)
	if err != nil {
		s.missing = s.missing || !s.begun && errors.Is(err, ErrTopicMissing)
		return errors.Join(err, s.goOn(ctx))
	}
	ends, begins := map[publish.Log]int64{}, map[publish.Log]int64{}
	s.turn++
	for i, t := range topics {
		// What the client knows of topics may be old, so one at least is asked for.
		if !s.hasNew(t) && i != s.turn%len(topics) {
			continue
		}
		o, err := s.b.client.Offsets(timed, t.Name)
		if err != nil {
			return errors.Join(err, s.goOn(ctx))
		}
		for p, end := range o.End {
			ends[publish.Log{Topic: t.Name, Partition: p}] = end
		}
		since, err := s.since(timed, t.Name, o.End)
		if err != nil {
			return errors.Join(err, s.goOn(ctx))
		}
		for p, offset := range since {
			begins[publish.Log{Topic: t.Name, Partition: p}] = offset
		}
	}
	err = s.goOn(ctx)
	for log, end := range ends {
		if !s.known[log] {
			s.begin(ctx, log, begins[log], end)
		}
	}
	s.begun = true
	return err
}

func (s *subscription) hasNew(t broker.Topic) bool {
	for p := range t.Partitions {
		if !s.known[publish.Log{Topic: t.Name, Partition: p}] {
			return true
		}
	}
	return false
}

// goOn does what is right with the partitions that have stopped, and tells why they had.
func (s *subscription) goOn(ctx context.Context) error {
	var why []error
	for _, e := range s.stopped {
		switch {
		case errors.Is(e.err, broker.ErrNoTopic): // should there be one again, it is a new one
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

// since asks where each partition of a topic, whose ends are given, is to begin because
// of the time that was asked for.
func (s *subscription) since(ctx context.Context, topic string, ends []int64) ([]int64, error) {
	if s.begun || s.target.opts.From != publish.FromTime {
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

// begin decides where to begin with a partition. Since and end are those offsets of it.
func (s *subscription) begin(ctx context.Context, log publish.Log, since, end int64) {
	from, until := int64(0), int64(0)
	if !s.begun {
		switch s.target.opts.From {
		case publish.FromLast:
			until = end
		case publish.FromNow:
			if !s.missing {
				from = end
			}
		case publish.FromTime:
			from = since
		case publish.FromStart:
		}
	}
	s.known[log] = true
	p := s.b.newPartition(log, from)
	if s.target.opts.Past != nil {
		p = s.b.newPartition(log, 0)
		p.from = from
	}
	s.follow(ctx, p, until)
}

// follow reads a partition: up to an offset the last record of each key, from there on
// all.
func (s *subscription) follow(ctx context.Context, p *partition, until int64) {
	s.workers.Go(func() {
		var err error
		if p.next < until {
			err = p.readLasts(ctx, until, &s.target)
		}
		if err == nil {
			err = p.follow(ctx, func(r broker.Record) error { return p.give(&s.target, r) })
		}
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
