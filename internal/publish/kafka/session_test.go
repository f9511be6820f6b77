package kafka

import (
	"testing"

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
