package reader

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// errRecreated means that a topic was deleted and recreated under the same name.
var errRecreated = fmt.Errorf("the topic was recreated: %w", broker.ErrNoTopic)

// looked is the result of looking up a topic.
type looked struct {
	topic, id string
	offsets   broker.Offsets
	since     []int64 // first offset to read in each partition; nil unless requested
}

// look looks up the ID of each topic, then its offsets, and then calls since, unless since is nil. If a topic
// is recreated in between, the next look shows another ID. look asks for several topics at a time, because
// each of them takes several round trips to the brokers.
func (b *Bus) look(ctx context.Context, topics []broker.Topic, since func(ctx context.Context, topic string, ends []int64) ([]int64, error)) ([]looked, error) {
	all := make([]looked, len(topics))
	err := broker.Each(ctx, len(topics), func(ctx context.Context, i int) (err error) {
		l := &all[i]
		l.topic = topics[i].Name
		if l.id, err = b.client.TopicID(ctx, l.topic); err != nil {
			return err
		}
		if l.offsets, err = b.client.Offsets(ctx, l.topic); err == nil && since != nil {
			l.since, err = since(ctx, l.topic, l.offsets.End)
		}
		return err
	})
	return all, err
}

// bounds are the first offset and the end of a partition at one moment.
type bounds struct {
	topic      string // ID of the topic; "" if unknown
	start, end int64
	at         time.Time // without the monotonic clock, which stops while the machine is suspended
}

// observe records the bounds of a partition. With UntilLost, it returns an error if the subscription
// might have missed records. Without UntilLost, it stops the reader of a partition whose topic was
// recreated.
func (s *subscription) observe(log publish.Log, now bounds) error {
	before, ok := s.seen[log]
	position, resumed := s.target.opts.Cursor.Positions[log]
	if !ok && resumed {
		before.topic = s.target.opts.Cursor.Topics[log.Topic]
	}
	isRecreated := isOther(before.topic, now.topic)
	now.topic = cmp.Or(now.topic, before.topic)
	s.seen[log] = now
	switch {
	case !s.target.opts.UntilLost:
		if stop := s.known[log]; isRecreated && stop != nil {
			stop(errRecreated)
		}
	case isRecreated, ok && before.lost(now), !ok && resumed && now.misses(publish.Offset(position)+1):
		return fmt.Errorf("topic %s, partition %d: %w", log.Topic, log.Partition, publish.ErrLost)
	}
	return nil
}

// isOther reports whether a topic has another ID than before. An ID is "" if it is unknown.
func isOther(before, now string) bool { return before != "" && now != "" && now != before }

// lost reports whether records might have been removed between two observations: the log starts later,
// it ends earlier, or the observations are more than [publish.MaxAway] apart. Compaction moves neither
// bound.
func (b bounds) lost(now bounds) bool {
	return now.start > b.start || now.end < b.end || now.at.Sub(b.at) > publish.MaxAway
}

// misses reports whether a read that continues at the offset next might miss records, because the log
// starts after it or ends before it.
func (b bounds) misses(next int64) bool { return next < b.start || next > b.end }
