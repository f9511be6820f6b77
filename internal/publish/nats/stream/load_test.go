package stream

import (
	"context"
	"maps"
	"slices"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// TestReadMissing verifies that readMissing reads the subjects that the consumer did not return, and
// skips subjects that are purged meanwhile.
func TestReadMissing(t *testing.T) {
	c := connect(t, natstest.Start(t).URL)
	want := fill(t, c, 10, 2)
	l, got := loader(c)
	for subject := range want {
		if subject != "kuberelay.web-3" && subject != "kuberelay.web-7" {
			l.seen[subject] = false
		}
	}
	if err := l.readMissing(t.Context()); err != nil {
		t.Fatal(err)
	}
	missing := map[string]uint64{"kuberelay.web-3": want["kuberelay.web-3"], "kuberelay.web-7": want["kuberelay.web-7"]}
	if !maps.Equal(got, missing) {
		t.Errorf("got %v, want %v", got, missing)
	}

	l.seen = map[string]bool{}
	n := 0
	l.take = func(*Message) error {
		n++
		stream, err := c.JS.Stream(t.Context(), "KUBERELAY")
		if err != nil {
			return err
		}
		return stream.Purge(t.Context())
	}
	if err := l.readMissing(t.Context()); err != nil || n != 1 {
		t.Errorf("purged after the first: %d read, error %v", n, err)
	}
}

// TestReadMissingTakesBack verifies that a subject that was purged after the consumer returned it is
// reported as purged.
func TestReadMissingTakesBack(t *testing.T) {
	c := connect(t, natstest.Start(t).URL)
	fill(t, c, 1, 1)
	l, got := loader(c)
	got["kuberelay.purged"] = 1
	l.seen["kuberelay.purged"] = false
	if err := l.readMissing(t.Context()); err != nil {
		t.Fatal(err)
	}
	if position, ok := got["kuberelay.purged"]; !ok || position != 0 {
		t.Errorf("it is loaded at %d, want that it is reported as purged", position)
	}
}

// TestReadMissingPages verifies that readMissing finds every subject that the consumer did not return
// if others are purged between the pages of the list.
func TestReadMissingPages(t *testing.T) {
	s := natstest.Start(t)
	c := connect(t, s.URL)
	want := fill(t, c, 95, 1)
	sorted := slices.Sorted(maps.Keys(want))
	stream, err := c.JS.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	page := 0
	c.Opts.Domain = natstest.Pages(t, s.URL, 10, func(int) {
		if page++; page == 1 {
			return
		}
		for _, subject := range sorted[3*page : 3*page+3] {
			if err := stream.DeleteMsg(t.Context(), want[subject]); err != nil {
				t.Error(err)
			}
		}
	})
	l, got := loader(c)
	if err := l.readMissing(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, subject := range sorted {
		purged := i >= 6 && i < 3*page+3
		if !purged && got[subject] != want[subject] {
			t.Errorf("%s is loaded at %d, want %d", subject, got[subject], want[subject])
		}
	}
	if page < 10 {
		t.Errorf("%d pages", page)
	}
}

// TestLoadGap verifies that a lost message is detected by the number of the next message, or at the
// end by a request to the server.
func TestLoadGap(t *testing.T) {
	c := connect(t, natstest.Start(t).URL)
	fill(t, c, 3, 1)
	consumer, err := c.JS.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>", AckPolicy: jetstream.AckNonePolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := loader(c)
	l.consumer = consumer
	messages, err := c.Pull(consumer, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	next := func() (*Message, *natsgo.MsgMetadata) {
		msg, meta, err := messages.Next(limit)
		if err != nil {
			t.Fatal(err)
		}
		return msg, meta
	}
	if pending, err := l.receive(next()); pending != 2 || err != nil {
		t.Errorf("the first message: %d pending, %v", pending, err)
	}
	if pending, err := l.left(t.Context()); pending != 2 || err != nil {
		t.Errorf("asked in between: %d pending, %v", pending, err)
	}
	next() // this message counts as lost
	if pending, err := l.left(t.Context()); err == nil {
		t.Errorf("a message is lost, and %d are pending", pending)
	}
	if _, err := l.receive(next()); err == nil {
		t.Error("a message is lost, and the next was taken")
	}
}

// TestLoadDeleted verifies that a load does not wait for messages that were deleted one by one after
// the server had counted them. An earlier version waited forever.
func TestLoadDeleted(t *testing.T) {
	c := connect(t, natstest.Start(t).URL)
	want := fill(t, c, 40, 1)
	consumer, err := c.JS.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>", AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.JS.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for subject, position := range want {
		if n++; n%2 == 0 {
			if err := stream.DeleteMsg(t.Context(), position); err != nil {
				t.Fatal(err)
			}
			delete(want, subject)
		}
	}
	l, got := loader(c)
	l.consumer = consumer
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.readMissing(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
}

// TestLoadWithoutConsumers verifies that a load reads the messages one by one if the server starts
// no consumer.
func TestLoadWithoutConsumers(t *testing.T) {
	c := connect(t, natstest.Start(t).URL)
	want := fill(t, c, 10, 2)
	c.JS = noConsumers{c.JS}
	_, got := loader(c)
	received, err := c.Load(t.Context(), "kuberelay.>", func(m *Message) error { got[m.Subject] = m.Sequence; return nil }, nil)
	if err != nil || received != 0 || !maps.Equal(got, want) {
		t.Errorf("got %v, %d from a consumer, want %v from none (%v)", got, received, want, err)
	}
}

// noConsumers never responds to a request to create a consumer.
type noConsumers struct{ jetstream.JetStream }

func (noConsumers) CreateConsumer(ctx context.Context, _ string, _ jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
