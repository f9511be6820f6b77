package e2e

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

const clusterName = "e2e"

// received is a message of the stream, read without the forwarder's code.
type received struct {
	subject  string
	sequence uint64
	headers  natsgo.Header
	data     []byte
}

// attribute returns a percent-decoded CloudEvents attribute.
func (r received) attribute(name string) string {
	if v := r.headers["ce-"+name]; len(v) == 1 {
		decoded, err := url.PathUnescape(v[0])
		if err != nil {
			return "undecodable: " + v[0]
		}
		return decoded
	}
	return ""
}

// kind returns the last part of the event type.
func (r received) kind() string {
	t := r.attribute("type")
	return t[strings.LastIndexByte(t, '.')+1:]
}

// subscriber stores every message that the stream delivers, in order. It continues across restarts
// of the server.
type subscriber struct {
	t  *testing.T
	mu sync.Mutex
	// events holds the messages by subject, in the order of the stream.
	events map[string][]received
	count  int
	nc     *natsgo.Conn
}

func subscribe(t *testing.T, url string) *subscriber {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(limit), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := &subscriber{t: t, events: map[string][]received{}, nc: nc}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	var stream jetstream.Stream
	poll.Try(t, "the stream exists", func(ctx context.Context) (err error) {
		stream, err = js.Stream(ctx, "KUBERELAY")
		return err
	})
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		t.Fatal(err)
	}
	running, err := consumer.Consume(s.take)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Stop)
	return s
}

func (s *subscriber) take(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.events[m.Subject()] = append(s.events[m.Subject()], received{m.Subject(), meta.Sequence.Stream, m.Headers(), m.Data()})
}

// of returns the messages of a subject.
func (s *subscriber) of(subject string) []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.events[subject]...)
}

// kinds returns the event kinds of a subject's messages, separated by spaces.
func (s *subscriber) kinds(subject string) string {
	var kinds []string
	for _, r := range s.of(subject) {
		kinds = append(kinds, r.kind())
	}
	return strings.Join(kinds, " ")
}

// awaitKinds waits until the events of a subject have exactly these kinds, in order.
func (s *subscriber) awaitKinds(subject, want string) {
	s.t.Helper()
	poll.Try(s.t, subject+" has "+want, func(context.Context) error {
		if got := s.kinds(subject); got != want {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

// marker returns the subject of a resource's snapshot markers.
func marker(of schema.GroupVersionResource) string {
	tokens := strings.Split(subject(of, "", ""), ".")
	return strings.Join([]string{tokens[0], tokens[1], "_control.snapshot", tokens[2], tokens[3]}, ".")
}

// awaitSnapshots waits until the first snapshot of each resource is complete. The forwarder can be
// idle before it publishes the marker that completes a snapshot. If the forwarder is killed before
// then, it starts the snapshot again.
func (s *subscriber) awaitSnapshots(of ...schema.GroupVersionResource) {
	s.t.Helper()
	for _, r := range of {
		s.awaitKinds(marker(r), "started completed")
	}
}

// last returns the last event for each object's subject.
func (s *subscriber) last() map[string]received {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := map[string]received{}
	for subject, all := range s.events {
		if !strings.Contains(subject, "._control.") {
			last[subject] = all[len(all)-1]
		}
	}
	return last
}

// checkOrder verifies every message of the stream. No two adjacent messages of an object may have
// the same id, and versions may not decrease within a UID.
func (s *subscriber) checkOrder() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject, all := range s.events {
		for n := 1; n < len(all); n++ {
			before, after := all[n-1], all[n]
			if before.attribute("id") == after.attribute("id") {
				s.t.Errorf("%s: id %s at %d and again at %d", subject, after.attribute("id"), before.sequence, after.sequence)
			}
			if before.attribute("uid") == after.attribute("uid") && before.attribute("sequence") > after.attribute("sequence") {
				s.t.Errorf("%s: sequence %s at %d, then %s at %d", subject, before.attribute("sequence"), before.sequence, after.attribute("sequence"), after.sequence)
			}
		}
	}
}

// checkUnique verifies that every event of an object exists only once.
func (s *subscriber) checkUnique() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]uint64{}
	for subject, all := range s.events {
		if strings.Contains(subject, "._control.") {
			continue
		}
		for _, r := range all {
			id := r.attribute("id")
			if before, ok := seen[id]; ok {
				s.t.Errorf("%s: id %s at %d and again at %d, among\n%s", subject, id, before, r.sequence, history(all))
			}
			seen[id] = r.sequence
		}
	}
}

// history formats the messages of a subject for an error message.
func history(all []received) string {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "  %d %s %s after %q, cause %s, observed %s\n", r.sequence, r.kind(), r.attribute("id"), r.attribute("previousversion"), r.attribute("cause"), r.attribute("time"))
	}
	return b.String()
}

// end waits until the subscriber has reached the end of the stream.
func (s *subscriber) end() {
	s.t.Helper()
	js, err := jetstream.New(s.nc)
	if err != nil {
		s.t.Fatal(err)
	}
	poll.Try(s.t, "the subscriber is at the end of the stream", func(ctx context.Context) error {
		stream, err := js.Stream(ctx, "KUBERELAY")
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var at uint64
		for _, all := range s.events {
			at = max(at, all[len(all)-1].sequence)
		}
		if last := stream.CachedInfo().State.LastSeq; at < last {
			return fmt.Errorf("at %d of %d", at, last)
		}
		return nil
	})
}

func (s *subscriber) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// jetStream connects to a NATS server. The connection closes when the test ends.
func jetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}
