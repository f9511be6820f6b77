package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// BenchmarkTakeOver takes over 200 topics, one per resource, of 3 partitions each, as a
// forwarder does before its first event.
func BenchmarkTakeOver(b *testing.B) {
	const topics = 200
	o := testOptions(kafkabrokertest.Shared(b).Addr())
	prefix := "topic-" + newID()
	o.Cluster, o.Topic, o.CheckpointTopic = prefix, prefix+".{resource}", prefix+"-checkpoint"
	o.Partitions = 3
	bus := openBus(b, o)
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	if err := bus.Wait(ctx); err != nil {
		b.Fatal(err)
	}
	r := event.Builder{Cluster: o.Cluster}
	for i := range topics {
		resource := event.Resource{Version: "v1", Resource: fmt.Sprint("resources", i), Kind: "Kind"}
		m, err := r.Marker(event.SnapshotStarted, resource, "session", 0, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		err = poll.Until(ctx, time.Minute, "the topic accepts a marker", func(ctx context.Context) error {
			done := make(chan error, 1)
			bus.Publish(ctx, m, func(_ uint64, err error) { done <- err })
			return <-done
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := bus.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		next := openBus(b, o)
		if err := next.Wait(ctx); err != nil {
			b.Fatal(err)
		}
		crash(next)
	}
}
