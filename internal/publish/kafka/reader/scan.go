package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// ErrChanged means that a topic was recreated, that a partition now ends before a position that was
// already read, or that a topic or partition no longer exists.
var ErrChanged = errors.New("a topic lost records or was recreated during the read")

// Scan reads the topics from their start, in steps. It is not safe for concurrent use.
type Scan struct {
	b          *Bus
	partitions map[publish.Log]*partition
	topics     map[string]string // the ID of each topic, as far as it is known

	patience time.Duration // the time without records after which a step fails
}

// Scan returns a new scan.
func (b *Bus) Scan() *Scan {
	return &Scan{b: b, partitions: map[publish.Log]*partition{}, topics: map[string]string{}, patience: 15 * time.Second}
}

// Ends returns the last position that was read in each partition.
func (s *Scan) Ends() map[publish.Log]uint64 {
	ends := make(map[publish.Log]uint64, len(s.partitions))
	for log, p := range s.partitions {
		ends[log] = publish.PositionOf(log.Partition, p.next-1)
	}
	return ends
}

// step calls do concurrently for every partition, with the partition's current end. do must call
// alive for each record.
func (s *Scan) step(ctx context.Context, do func(ctx context.Context, p *partition, end int64, alive func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(s.patience, func() { cancel(fmt.Errorf("no records for %s", s.patience)) })
	defer idle.Stop()
	alive := func() { idle.Reset(s.patience) }

	ends, err := s.ends(ctx)
	if err != nil {
		return s.failed(ctx, err)
	}
	all, reading := errgroup.WithContext(ctx)
	for log, end := range ends {
		p := s.partitions[log]
		if p == nil {
			p = s.b.newPartition(log, 0)
			s.partitions[log] = p
		}
		all.Go(func() error { return do(reading, p, end, alive) })
	}
	if err := all.Wait(); err != nil {
		return s.failed(ctx, err)
	}
	return nil
}

// ends returns the end of every partition. It returns [ErrChanged] if a topic was recreated, or if a
// partition no longer exists, or ends before a position that was already read.
func (s *Scan) ends(ctx context.Context) (map[publish.Log]int64, error) {
	ends := map[publish.Log]int64{}
	topics, err := s.b.topics(ctx)
	if err != nil && (len(s.partitions) == 0 || !errors.Is(err, errTopicMissing)) {
		return nil, err
	}
	all, err := s.b.look(ctx, topics, nil)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if isOther(s.topics[l.topic], l.id) {
			return nil, fmt.Errorf("%w: %s", ErrChanged, l.topic)
		}
		s.topics[l.topic] = cmp.Or(l.id, s.topics[l.topic])
		for p, end := range l.offsets.End {
			ends[publish.Log{Topic: l.topic, Partition: p}] = end
		}
	}
	for log, p := range s.partitions {
		if end, ok := ends[log]; !ok || end < p.next {
			return nil, fmt.Errorf("%w: %s, partition %d", ErrChanged, log.Topic, log.Partition)
		}
	}
	return ends, nil
}

func (s *Scan) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, broker.ErrPastEnd), errors.Is(err, broker.ErrNoTopic):
		return fmt.Errorf("%w: %w", ErrChanged, err)
	case context.Cause(ctx) != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
