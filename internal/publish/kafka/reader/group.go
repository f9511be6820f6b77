package reader

import (
	"context"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// Progress returns how far a consumer group has read a partition. The error wraps
// [publish.ErrNoConsumer] if the group has not committed an offset for the partition.
func (b *Bus) Progress(ctx context.Context, group string, log publish.Log) (publish.Progress, error) {
	next, err := b.client.Committed(ctx, group, log.Topic, log.Partition)
	if err != nil {
		return publish.Progress{}, err
	}
	if next < 0 {
		return publish.Progress{}, fmt.Errorf("it has not committed an offset of topic %s, partition %d: %w", log.Topic, log.Partition, publish.ErrNoConsumer)
	}
	end, err := b.client.End(ctx, log.Topic, log.Partition)
	if err != nil {
		return publish.Progress{}, err
	}
	return publish.Progress{Acknowledged: next - 1, Behind: max(0, end-next)}, nil
}
