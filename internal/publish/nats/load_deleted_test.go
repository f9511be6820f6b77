package nats

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/internal/publish/publishtest"
)

// TestLoadDeleted: messages that someone deletes one by one, after the server has
// counted them for us, are not waited for. A load once waited for ever.
func TestLoadDeleted(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster})
	want := fill(t, bus, 40, 1)
	consumer, err := bus.js.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>", AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := bus.js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for k, a := range want {
		if n++; n%2 == 0 {
			if err := stream.DeleteMsg(t.Context(), a.Position); err != nil {
				t.Fatal(err)
			}
			delete(want, k)
		}
	}
	got := map[event.Key]event.Acked{}
	l := loading{b: bus, consumer: consumer, seen: map[string]struct{}{}, yield: func(k event.Key, a event.Acked) error { got[k] = a; return nil }}
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.readMissing(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("loaded %d objects, want %d", len(got), len(want))
	}
}
