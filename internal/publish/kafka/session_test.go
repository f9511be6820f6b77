package kafka

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recorder"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
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

// TestAFailedMarkKeepsTheFormerMarkers verifies that a failed attempt to write the markers of a topic again
// keeps the entries of those that are stored. A sender records the entry of its partition when it finds a
// record of another writer.
func TestAFailedMarkKeepsTheFormerMarkers(t *testing.T) {
	o := testOptions("127.0.0.1:1") // no broker listens there
	var denied atomic.Bool
	var end atomic.Int64
	release := make(chan struct{})
	o.produce = func(_ context.Context, _ string, partition int, _ []byte) (int64, error) {
		switch {
		case denied.Load() && partition == 0:
			return -1, kafkago.TopicAuthorizationFailed
		case denied.Load():
			<-release
		}
		return end.Add(1), nil
	}
	b := openBus(t, o)
	s := newSession(b, broker.NoProducer)
	s.recorder = recorder.New(recorder.Config{Senders: []*sender.Sender{s.newSender("checkpoint", 0, nil, nil)}, Spread: 1, Room: 100, Fail: s.end})
	topic := s.addTopic("topic", 2)
	if err := s.mark(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(topic.markers)
	denied.Store(true)
	if err := s.mark(t.Context(), topic); err == nil {
		t.Fatal("the markers were written")
	}
	if !slices.Equal(topic.markers, before) {
		t.Errorf("the markers are %+v, want %+v", topic.markers, before)
	}
	close(release)
	s.end(errRenew)
	s.wait()
}
