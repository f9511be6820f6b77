package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// TestAPartitionHasItsShare verifies that a partition can use only its share of the messages and
// bytes in flight, even before it counts as stalled. A message beyond the share is rejected at
// once.
func TestAPartitionHasItsShare(t *testing.T) {
	const partitions, frozen, events = 4, 1, 8
	for name, limit := range map[string]func(o *Options, size int) (admitted int){
		"messages": func(o *Options, _ int) int { o.MaxInFlight = 12; return 3 },
		"bytes":    func(o *Options, size int) int { o.MaxBytesInFlight = partitions*2*size + 1; return 2 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriters(t, partitions)
			client, err := broker.New(w.opts.Broker)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			f := &freezer{thawed: make(chan struct{})}
			f.thaw()
			w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
				if topic == w.opts.Topic && partition == frozen {
					if err := f.wait(ctx); err != nil {
						return 0, err
					}
				}
				return client.Produce(ctx, topic, partition, batch)
			}
			var stuck []*event.Message
			var other *event.Message
			for i := 0; len(stuck) < events || other == nil; i++ {
				m := w.message(fmt.Sprintf("web-%04d", i), 1, 0)
				if binding.Partition([]byte(event.PartitionKey(w.opts.Cluster, m.Key)), partitions) != frozen {
					other = m
				} else if len(stuck) < events {
					stuck = append(stuck, m)
				}
			}
			admitted := limit(&w.opts, len(stuck[0].Data))
			w.opts.AckTimeout = time.Hour // so that the partition does not stall
			b := w.open()

			f.freeze()
			results := make(chan error, events)
			for _, m := range stuck {
				b.Publish(t.Context(), m, func(_ uint64, err error) { results <- err })
			}
			if got := events - len(results); got != admitted {
				t.Errorf("%d events of one partition are in flight, want %d", got, admitted)
			}
			for range len(results) {
				if err := <-results; !errors.Is(err, publish.ErrNotSent) {
					t.Errorf("got %v, want %v", err, publish.ErrNotSent)
				}
			}
			w.mustPublish(b, other)
			f.thaw()
			for range admitted {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
