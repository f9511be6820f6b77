package kafkabroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// TestJoin verifies that a frozen broker of a cluster stops only the partitions that it leads.
func TestJoin(t *testing.T) {
	first := kafkabrokertest.Start(t, kafkabroker.Options{Properties: map[string]string{"broker.session.timeout.ms": "300000"}})
	second := kafkabrokertest.Start(t, kafkabroker.Options{Join: first.Broker, NodeID: 2})
	for topic, node := range map[string]int{"here": 1, "there": 2} {
		if err := first.CreateTopicOn(t.Context(), topic, []int{node}, nil); err != nil {
			t.Fatal(err)
		}
		if err := produce(t.Context(), first.Addr(), topic, "before", nil); err != nil {
			t.Fatalf("%s: %v", topic, err)
		}
	}
	second.Freeze()
	if err := produce(t.Context(), first.Addr(), "here", "frozen", nil); err != nil {
		t.Errorf("the other broker does not serve: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := produce(ctx, first.Addr(), "there", "frozen", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a partition of the frozen broker: got error %v, want %v", err, context.DeadlineExceeded)
	}
	second.Thaw()
}
