package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// Load yields what the checkpoint should hold of every object of the cluster that the
// bus has an event of, as of the time when Load began or later. An object may be
// yielded again, with a later position: the last counts. Snapshot markers are left
// out. It fails rather than yield a part; an error of yield ends it and is returned as
// it is.
//
// The first time it gives what was found when this became the writer. From then on it
// reads the checkpoint topic, and looks whether the event topics still are what was
// written to. Where they are not, it fails, and the bus finds out what is left.
func (b *Bus) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	s, err := b.current()
	if s == nil {
		return fmt.Errorf("load the checkpoint: %w", err)
	}
	l := loading{b: b, s: s, yield: yield}
	if loaded := s.takeLoaded(); loaded != nil {
		for key, e := range loaded {
			if err := l.take([]byte(key), e); err != nil {
				return err
			}
		}
		return nil
	}
	if err := l.run(ctx); err != nil {
		if l.yieldErr != nil {
			return l.yieldErr
		}
		return fmt.Errorf("load the checkpoint: %w", err)
	}
	return nil
}

// loading is one run of Load.
type loading struct {
	b     *Bus
	s     *session
	start map[string][]int64 // the first offset that each partition of a topic holds

	mu       sync.Mutex // serializes yield
	yield    func(event.Key, event.Acked) error
	yieldErr error
}

func (l *loading) run(ctx context.Context) error {
	ctx, release := l.s.bound(ctx) // what it waits for may never come then
	defer release()
	if err := l.check(ctx); err != nil {
		return err
	}
	if err := l.s.flush(ctx); err != nil {
		return err
	}
	offsets, err := l.b.client.Offsets(ctx, l.b.opts.CheckpointTopic)
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for p, end := range offsets.End {
		all.Go(func() error { return l.b.readRecords(ctx, p, end, l.take, func(topicState) {}) })
	}
	return all.Wait()
}

// check looks whether each partition has our marker where we wrote it, and whether it
// is as long as it was. If not, the session ends.
func (l *loading) check(ctx context.Context) error {
	l.start = map[string][]int64{}
	for _, t := range l.s.opened() {
		ends := make([]int64, len(t.lanes))
		for p, lane := range t.lanes {
			ends[p] = lane.end()
		}
		offsets, err := l.b.client.Offsets(ctx, t.name)
		if err == nil {
			l.start[t.name] = offsets.Start
			err = l.compare(ctx, t, ends, offsets)
		}
		if errors.Is(err, errWentBack) || errors.Is(err, broker.ErrNoTopic) {
			err = fmt.Errorf("%w: %w", errWentBack, err)
			l.s.end(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare compares a topic with how far it was written to.
func (l *loading) compare(ctx context.Context, t *topic, ends []int64, offsets broker.Offsets) error {
	for p, end := range ends {
		if p >= len(offsets.End) || offsets.End[p] < end {
			return fmt.Errorf("%w: partition %d of topic %q", errWentBack, p, t.name)
		}
		intact := t.markers[p] < offsets.Start[p] // truncated: see take
		if !intact {
			var err error
			if intact, err = l.b.hasMarker(ctx, t.name, p, t.markers[p], l.s.id); err != nil {
				return err
			}
		}
		if !intact {
			return fmt.Errorf("%w: partition %d of topic %q is another one than before", errWentBack, p, t.name)
		}
	}
	return nil
}

// take yields an entry, unless it is a marker's or the bus has lost its event.
func (l *loading) take(key []byte, e entry) error {
	if e.Type != "" {
		return nil
	}
	_, k, err := event.ParsePartitionKey(string(key))
	if err != nil {
		l.b.log.Warn("a record of the checkpoint topic is no object's", "err", err)
		return nil
	}
	acked := e.acked()
	start, open := l.start[e.Topic]
	switch {
	case e == (entry{}):
		acked = event.Acked{}
	case l.start != nil && !open: // the topic is gone
		l.s.index.lost(identify(key), e.position())
		acked = event.Acked{}
	case e.Partition < len(start) && e.Offset < start[e.Partition] && !failpoint.Bug("trust-lost-records"): // they were deleted
		l.s.index.lost(identify(key), e.position())
		acked = event.Acked{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.yieldErr == nil {
		l.yieldErr = l.yield(k, acked)
	}
	return l.yieldErr
}
