package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
)

// kafkaSource is read when it is asked to: each time to the ends of its partitions.
type kafkaSource struct {
	*reader.Bus
	scan *reader.Scan
}

var _ source = kafkaSource{}

// afterCompaction is the depth of a history where all but the last event of an object
// may be gone.
const afterCompaction = 1

func openTopics(o Options, cluster string, form form) (*follower, error) {
	ro := *o.Kafka
	ro.Cluster = cluster
	bus, err := reader.Open(ro)
	if err != nil {
		return nil, err
	}
	f := newFollower(kafkaSource{bus, bus.Scan()}, place{Cluster: cluster, Records: true}, form, afterCompaction, o.DeleteRetention)
	f.history.forgets, f.history.repeats = true, o.Repeats
	f.history.show = func(position uint64) string {
		return fmt.Sprintf("%d:%d", publish.Partition(position), publish.Offset(position))
	}
	return f, nil
}

func (s kafkaSource) lasts(ctx context.Context, each func(event.Key, uint64)) error {
	err := s.scan.Lasts(ctx, each)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, publish.ErrMissing), errors.Is(err, reader.ErrMisconfigured), errors.Is(err, reader.ErrChanged):
		return fmt.Errorf("read the bus: %w", err)
	}
	return fmt.Errorf("open the bus: %w: %w", ErrUnreachable, err) // it is the first that is asked
}

func (s kafkaSource) run(context.Context, *follower) {}

func (s kafkaSource) catchUp(ctx context.Context, f *follower) error {
	f.askWith(ctx)
	err := s.scan.Next(ctx, publish.SubscribeOptions{Foreign: f.takeForeign, Tombstone: f.takeTombstone}, f.take)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.ended
	}
	if err != nil {
		return fmt.Errorf("read the bus: %w", err)
	}
	return nil
}

// catchUpWith finds nothing that would excuse a doubt: on Kafka doubts have their reason
// at once.
func (s kafkaSource) catchUpWith(ctx context.Context, f *follower, _ event.Key) (more bool, err error) {
	return false, s.catchUp(ctx, f)
}

// report splits positions into partition and offset.
func (s kafkaSource) report(r *Report) {
	for log, end := range s.scan.Ends() {
		r.Partitions = append(r.Partitions, Partition{log.Topic, log.Partition, publish.Offset(end) + 1})
	}
	slices.SortFunc(r.Partitions, func(a, b Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for i := range r.Problems {
		p := &r.Problems[i]
		if p.Position != 0 {
			partition := publish.Partition(p.Position)
			p.Partition, p.Position = &partition, uint64(publish.Offset(p.Position))
		}
	}
}
