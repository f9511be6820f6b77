package kafka

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// TestEndedSessionOpensNoTopic verifies that a message that still uses an ended session starts no worker.
// Nobody waits for a worker that starts after wait, and a WaitGroup can panic if it starts during wait.
func TestEndedSessionOpensNoTopic(t *testing.T) {
	b := openBus(t, testOptions("127.0.0.1:1")) // no broker listens there
	s := newSession(b, broker.NoProducer)
	s.end(errRenew)
	s.wait()
	topic := s.openTopic("topic")
	s.mu.Lock()
	defer s.mu.Unlock()
	if topic != nil || len(s.opening) > 0 {
		t.Errorf("got %v, and is opening %v", topic, s.opening)
	}
}

// gauge records the values of a metric.
type gauge struct {
	prometheus.Gauge

	values []float64
}

func (g *gauge) Set(value float64) { g.values = append(g.values, value) }

// TestReadyDoesNotFlicker verifies that the metric stays 1 while the bus stays ready. The bus confirms its
// state every second, and a scrape can be between two calls of Set.
func TestReadyDoesNotFlicker(t *testing.T) {
	ready := &gauge{}
	b := &Bus{metrics: &metrics{ready: ready}}
	b.phase.Store(&phase{over: make(chan struct{})})
	b.set(nil, nil)
	b.set(nil, nil)
	b.set(nil, errRenew)
	if want := []float64{1, 1, 0}; !slices.Equal(ready.values, want) {
		t.Errorf("the metric had the values %v, want %v", ready.values, want)
	}
}
