package nats

import (
	"context"
	"maps"
	"testing"

	cejetstream "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	cebinding "github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestSDK verifies that the CloudEvents SDK's receiver for NATS JetStream reads the events in both
// modes. The only difference is that in binary mode, the receiver does not decode the
// percent-encoding that the binding requires.
func TestSDK(t *testing.T) {
	truncated, err := event.Builder{Cluster: publishtest.Cluster}.Message(event.Change{
		Type: event.Updated, Cause: event.CauseReconcile, Key: publishtest.Resource.Key("default", "big"), Resource: publishtest.Resource,
		Epoch: 2, Previous: "6", Observed: someTime, Truncated: true,
		Object: &event.Object{
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "big", UID: "u-2", ResourceVersion: "7",
			Body: event.JSON([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"big","namespace":"default","uid":"u-2"},"spec":{}}`)),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	marker, err := event.Builder{Cluster: publishtest.Cluster}.Marker(event.SnapshotCompleted, publishtest.Resource, "s", 3, someTime)
	if err != nil {
		t.Fatal(err)
	}
	messages := []*event.Message{
		publishtest.Object{Name: "web", Version: 1, Data: "é"}.Message(t, 0),
		publishtest.Object{Name: "gone", Version: 2, Deleted: true}.Message(t, 0),
		odd(t), truncated, marker, publishtest.Changed(t, "changed", 2, 0),
	}
	for _, mode := range []ContentMode{Binary, Structured} {
		t.Run(string(mode), func(t *testing.T) {
			s := natstest.Start(t)
			bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}, ContentMode: mode})
			for _, m := range messages {
				again := *m
				again.Expected = 0
				publishOK(t, bus, &again)
			}
			for i, got := range receive(t, s.URL, len(messages)) {
				want, encoded := publishtest.Attributes(messages[i]), map[string]string{}
				msg, err := binding.Encode(messages[i], false, binding.NewHeader())
				if err != nil {
					t.Fatal(err)
				}
				for name := range want {
					encoded[name] = msg.Header.Get("ce-" + name)
				}
				if mode == Binary {
					want = encoded
				}
				if diff := cmp.Diff(want, publishtest.SDKAttributes(t, got)); diff != "" {
					t.Errorf("%s: attributes (-want +got):\n%s", messages[i].ID, diff)
				}
				if err := got.Validate(); err != nil {
					t.Errorf("%s: %v", messages[i].ID, err)
				}
				if string(got.Data()) != string(messages[i].Data) {
					t.Errorf("%s: data is %s, want %s", messages[i].ID, got.Data(), messages[i].Data)
				}
				needs := messages[i].Key.Name == odd(t).Key.Name || messages[i].Attribute("changed") != ""
				if plain := maps.Equal(publishtest.Attributes(messages[i]), encoded); plain == needs {
					t.Errorf("%s: only the odd name and the odd place need encoding", messages[i].ID)
				}
			}
		})
	}
}

// receive reads n messages with the SDK's consumer.
func receive(t *testing.T, url string, n int) []*cloudevents.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	consumer, err := cejetstream.NewConsumer(url, "KUBERELAY", "kuberelay.>", []natsgo.Option{natsgo.Timeout(limit)}, []natsgo.JSOpt{natsgo.MaxWait(limit)},
		[]natsgo.SubOpt{natsgo.DeliverAll(), natsgo.BindStream("KUBERELAY")})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() { opened <- consumer.OpenInbound(ctx) }()
	var received []*cloudevents.Event
	for len(received) < n {
		message, err := consumer.Receive(ctx)
		if err != nil {
			t.Fatalf("after %d messages: %v", len(received), err)
		}
		e, err := cebinding.ToEvent(ctx, message)
		if err != nil {
			t.Fatal(err)
		}
		received = append(received, e)
		if err := message.Finish(nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := consumer.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
	return received
}
