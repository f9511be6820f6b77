package reader

import (
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// limit bounds every wait. Only a failing test waits that long.
const limit = 3 * time.Minute

// busWithMessage returns a Bus of a new stream, and the acknowledgement of the stream's only message.
func busWithMessage(t *testing.T) (*Bus, jetstream.Stream, *jetstream.PubAck) {
	t.Helper()
	s := natstest.Start(t)
	nc, err := natsgo.Connect(s.URL, natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KUBERELAY", Subjects: []string{"kuberelay.>"}})
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(t.Context(), "kuberelay.a", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Connect(t.Context(), Options{URLs: []string{s.URL}, Stream: "KUBERELAY", SubjectPrefix: "kuberelay"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, stream, ack
}

// TestProgressStart verifies that Progress returns where a consumer began, because the server
// reports the messages before that as acknowledged.
func TestProgressStart(t *testing.T) {
	b, stream, ack := busWithMessage(t)
	message, err := stream.GetMsg(t.Context(), ack.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	began := message.Time.Add(time.Nanosecond)
	for name, c := range map[string]struct {
		jetstream.ConsumerConfig
		skips func(publish.Start) bool
	}{
		"all":      {jetstream.ConsumerConfig{}, nil},
		"each":     {jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>"}, nil},
		"new":      {jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}, func(s publish.Start) bool { return message.Time.Before(s.Time) && !s.Last }},
		"last":     {jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy}, func(s publish.Start) bool { return message.Time.Before(s.Time) && s.Last }},
		"sequence": {jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 2}, func(s publish.Start) bool { return s.Position == 2 }},
		"time":     {jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &began}, func(s publish.Start) bool { return s.Time.Equal(began) }},
	} {
		c.Durable, c.AckPolicy = name, jetstream.AckExplicitPolicy
		if _, err := stream.CreateConsumer(t.Context(), c.ConsumerConfig); err != nil {
			t.Fatal(err)
		}
		p, err := b.Progress(t.Context(), name, publish.Log{})
		if err != nil {
			t.Fatal(err)
		}
		if c.skips == nil && p.Start != (publish.Start{}) || c.skips != nil && (!c.skips(p.Start) || p.Start.Why == "") {
			t.Errorf("%s: got %+v", name, p)
		}
		if skipped := name == "new" || name == "sequence" || name == "time"; skipped != (p.Acknowledged >= int64(ack.Sequence)) {
			t.Errorf("%s: acknowledged up to %d, and the message is at %d", name, p.Acknowledged, ack.Sequence)
		}
	}
}
