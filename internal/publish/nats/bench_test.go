package nats

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// benchBus returns a bus that is connected over TCP to a server of its own.
func benchBus(b *testing.B, mode ContentMode) *Bus {
	b.Helper()
	bus, err := Connect(b.Context(), Options{Connection: Connection{URLs: []string{natstest.Start(b, func(o *server.Options) { o.MaxPayload = 8 << 20 }).URL}, Cluster: "bench"}, ContentMode: mode})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { bus.Close() })
	return bus
}

func benchMessage(b *testing.B, name string, version int, data string) *event.Message {
	b.Helper()
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	uid := types.UID("7f0c7b66-52a5-4b8a-9b5a-" + name)
	m, err := event.Builder{Cluster: "bench"}.Message(event.Change{
		Type: event.Updated, Cause: event.CauseWatch, Key: r.Key("default", name), Resource: r, Observed: time.Unix(1, 0),
		Object: &event.Object{
			APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name, UID: uid, ResourceVersion: fmt.Sprint(version),
			Body: event.JSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","uid":%q},"data":%q}`, name, uid, data)),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkPublish publishes 10,000 objects of 8 KB with compare-and-set and as many messages in
// flight as allowed. It publishes them through Bus.Publish, and then through nats.go's own
// PublishMsgAsync, which checks nothing else and resolves no conflicts. The rates are those of the
// median round, and ratio is the first rate divided by the second. The messages for nats.go are
// already encoded.
func BenchmarkPublish(b *testing.B) {
	for _, mode := range []ContentMode{Binary, Structured} {
		b.Run(string(mode), func(b *testing.B) {
			bus := benchBus(b, mode)
			messages := make([]*event.Message, 10_000)
			data := strings.Repeat("x", 7_600)
			for i := range messages {
				messages[i] = benchMessage(b, fmt.Sprintf("pod-%d", i), i+1, data)
			}
			bare := newBareClient(b, bus, messages)
			publishAll(b, bus, messages) // so that every subject exists
			bare.publishAll(b)
			var ours, theirs []time.Duration
			for b.Loop() {
				begun := time.Now()
				publishAll(b, bus, messages)
				ours = append(ours, time.Since(begun))
				begun = time.Now()
				bare.publishAll(b)
				theirs = append(theirs, time.Since(begun))
			}
			ourMedian, bareMedian := median(ours).Seconds(), median(theirs).Seconds()
			b.ReportMetric(float64(len(messages))/ourMedian, "events/s")
			b.ReportMetric(float64(len(messages))/bareMedian, "bare-events/s")
			b.ReportMetric(bareMedian/ourMedian, "ratio")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// publishAll publishes all messages, and waits for their acknowledgements.
func publishAll(b *testing.B, bus *Bus, messages []*event.Message) {
	b.Helper()
	var all sync.WaitGroup
	for _, m := range messages {
		all.Add(1)
		bus.Publish(b.Context(), m, func(position uint64, err error) {
			if err != nil {
				b.Error(err)
			}
			m.Expected = position
			all.Done()
		})
	}
	all.Wait()
}

// bareClient is nats.go's own JetStream client with the messages to publish.
type bareClient struct {
	js       jetstream.JetStream
	messages []*natsgo.Msg
	expected []uint64 // the last sequence of each message's subject
}

// newBareClient returns a client with its own connection and its own stream on the bus's server. It
// has the same messages and the same in-flight limit as the bus.
func newBareClient(b *testing.B, bus *Bus, messages []*event.Message) *bareClient {
	b.Helper()
	nc, err := natsgo.Connect(bus.conn.NC.ConnectedUrl())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	c := &bareClient{expected: make([]uint64, len(messages))}
	if c.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(bus.opts.MaxInFlight)); err != nil {
		b.Fatal(err)
	}
	config := bus.opts.streamConfig()
	config.Name, config.Subjects = "BARE", []string{"bare.>"}
	if _, err := c.js.CreateStream(b.Context(), config); err != nil {
		b.Fatal(err)
	}
	for _, m := range messages {
		msg, err := binding.Encode(m, bus.opts.ContentMode == Structured, binding.NewHeader())
		if err != nil {
			b.Fatal(err)
		}
		msg.Subject = subject.Message("bare", bus.opts.Cluster, m)
		c.messages = append(c.messages, msg)
	}
	return c
}

// publishAll publishes all messages, and waits for their acknowledgements.
func (c *bareClient) publishAll(b *testing.B) {
	b.Helper()
	futures := make([]jetstream.PubAckFuture, len(c.messages))
	for i, msg := range c.messages {
		future, err := c.js.PublishMsgAsync(msg, jetstream.WithExpectLastSequencePerSubject(c.expected[i]), jetstream.WithStallWait(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
		futures[i] = future
	}
	for i, future := range futures {
		select {
		case ack := <-future.Ok():
			c.expected[i] = ack.Sequence
		case err := <-future.Err():
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	const objects = 100_000
	for _, mode := range []ContentMode{Binary, Structured} {
		b.Run(string(mode), func(b *testing.B) {
			bus := benchBus(b, mode)
			for i := range objects {
				bus.Publish(b.Context(), benchMessage(b, fmt.Sprintf("pod-%d", i), i+1, "x"), func(_ uint64, err error) {
					if err != nil {
						b.Error(err)
					}
				})
			}
			if err := bus.flights.pending.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if err := bus.Load(b.Context(), func(event.Key, event.Acked) error { n++; return nil }); err != nil {
					b.Fatal(err)
				}
				if n != objects {
					b.Fatalf("loaded %d objects, want %d", n, objects)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	m := benchMessage(b, "pod-1", 1, strings.Repeat("x", 7_600))
	for _, mode := range []ContentMode{Binary, Structured} {
		b.Run(string(mode), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := binding.Encode(m, mode == Structured, binding.NewHeader()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
