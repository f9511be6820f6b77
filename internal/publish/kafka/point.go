package kafka

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// publishPoint appends a consistency point to every partition of its topic, which must be
// open. In each partition, the point follows all acknowledged events. The position of the
// point is its position in partition 0. If a partition has stalled, publishPoint sends
// nothing. A point that fails might be stored in some partitions.
func (b *Bus) publishPoint(m *event.Message, done func(position uint64, err error)) {
	record, err := b.encode(m)
	if err != nil {
		b.reject(m, done, err)
		return
	}
	senders, err := b.sendersOf(m)
	if err != nil {
		b.reject(m, done, err)
		return
	}
	b.flights.pending.Begin()
	var once sync.Once
	finish := func(position uint64, err error) {
		once.Do(func() {
			defer b.flights.pending.End()
			b.metrics.Count(publish.ResultOf(err))
			if err != nil {
				err = fmt.Errorf("publish %s: %w", m.ID, err)
			}
			done(position, err)
		})
	}
	var first atomic.Uint64
	var left atomic.Int64
	left.Store(int64(len(senders)))
	items := make([]*sender.Item, len(senders))
	for p := range items {
		items[p] = &sender.Item{Record: record, Done: func(offset int64, err error) {
			if p == 0 {
				first.Store(publish.PositionOf(p, offset))
			}
			switch {
			case err != nil:
				finish(0, failureOf(maybeStored{err}))
			case left.Add(-1) == 0:
				finish(first.Load(), nil)
			}
		}}
	}
	for p, s := range senders {
		s.Add(items[p])
	}
	time.AfterFunc(b.opts.AckTimeout, func() {
		for p, s := range senders {
			s.Withdraw(items[p])
		}
		finish(0, errTimeout)
	})
}

// sendersOf returns the senders of a message's topic, by partition. It returns an error if
// the topic is not open or a partition has stalled.
func (b *Bus) sendersOf(m *event.Message) ([]*sender.Sender, error) {
	s, err := b.current()
	if err != nil {
		return nil, publish.Failure(publish.ResultNotReady, err)
	}
	t := s.openTopic(b.topics.Template.Of(m.Key))
	if t == nil {
		return nil, errOpening
	}
	now := time.Now()
	for _, s := range t.senders {
		if s.IsStalled(now) {
			return nil, errPartitionBusy
		}
	}
	return t.senders, nil
}
