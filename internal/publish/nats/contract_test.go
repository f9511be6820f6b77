package nats

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

func TestMain(m *testing.M) {
	natstest.RunIfChild()
	os.Exit(m.Run())
}

func TestContract(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		t.Run(string(mode), func(t *testing.T) {
			publishtest.Run(t, func(t *testing.T) publishtest.Bus { return contractBus(t, mode) })
		})
	}
}

// contractBus returns a bus on a server in its own process, behind a proxy that can drop the
// server's responses.
func contractBus(t *testing.T, mode ContentMode) publishtest.Bus {
	server := natstest.StartProcess(t)
	proxy := faultproxy.Start(t, strings.TrimPrefix(server.URL, "nats://"))
	read := eventReader(t, server.URL)
	return publishtest.Bus{
		Open: func(t *testing.T, impatient bool) publish.Publisher {
			o := Options{Connection: Connection{URLs: []string{proxy.Addr()}, Cluster: publishtest.Cluster, AckTimeout: 30 * time.Second}, ContentMode: mode}
			if impatient {
				o.AckTimeout = time.Second
			}
			return open(t, o)
		},
		Read:          func(t *testing.T, k event.Key) []publishtest.Event { return read(t, k) },
		CompareAndSet: true,
		TooLarge:      1 << 20,
		Kill:          func(*testing.T) { server.Kill() },
		Start:         func(*testing.T) { server.Start() },
		Mute:          func(*testing.T) { proxy.DropAnswers() },
		Unmute:        func(*testing.T) { proxy.Break(); proxy.Pass() },
		Freeze:        func(*testing.T) { server.Freeze() },
		Thaw:          func(*testing.T) { server.Thaw() },
		Purge: func(t *testing.T, k event.Key) {
			js := observe(t, server.URL)
			s, err := js.Stream(t.Context(), "KUBERELAY")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(subjectOf(k))); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// connect returns a bus that is ready, and closes it when the test ends.
func connect(t testing.TB, o Options) *Bus {
	t.Helper()
	bus := open(t, o)
	waitReady(t, bus)
	return bus
}

// open is like connect, but does not wait until the bus is ready.
func open(t testing.TB, o Options) *Bus {
	t.Helper()
	bus, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	return bus
}

// connectError calls Connect until it fails. Connect does not fail if the server responds too late.
func connectError(t testing.TB, o Options) (err error) {
	t.Helper()
	poll.Holds(t, "an error", func() bool {
		var bus *Bus
		if bus, err = Connect(t.Context(), o); err == nil {
			bus.Close()
		}
		return err != nil
	})
	return err
}

func subjectOf(k event.Key) string { return subject.Object("kuberelay", publishtest.Cluster, k) }

// observe returns a plain JetStream client.
func observe(t testing.TB, url string, opts ...natsgo.Option) jetstream.JetStream {
	t.Helper()
	nc, err := natsgo.Connect(url, append(opts, natsgo.Timeout(limit))...)
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

// readMessages reads all messages of a subject filter with its own client.
func readMessages(t testing.TB, url string, subject string) []jetstream.Msg {
	t.Helper()
	js := observe(t, url)
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	consumer, err := js.OrderedConsumer(ctx, "KUBERELAY", jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var messages []jetstream.Msg
	for uint64(len(messages)) < info.NumPending {
		m, err := consumer.Next(jetstream.FetchContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

// eventReader returns a function that reads events with its own client. The function works across
// restarts of the server.
func eventReader(t testing.TB, url string) func(testing.TB, event.Key) []publishtest.Event {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(limit), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	var stream jetstream.Stream
	return func(t testing.TB, k event.Key) []publishtest.Event {
		t.Helper()
		poll.Holds(t, "connected", func() bool {
			if nc.IsConnected() && stream == nil {
				stream, err = js.Stream(t.Context(), "KUBERELAY")
			}
			return nc.IsConnected() && err == nil
		})
		var events []publishtest.Event
		for position := uint64(1); ; position++ {
			msg, err := stream.GetMsg(t.Context(), position, jetstream.WithGetMsgSubject(subjectOf(k)))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return events
			}
			if err != nil {
				t.Fatal(err)
			}
			m, err := binding.Decode(msg.Header, msg.Data)
			if err != nil {
				t.Fatal(err)
			}
			position = msg.Sequence
			events = append(events, publishtest.Event{ID: m.ID, Position: position, Data: string(m.Data)})
		}
	}
}

func readEvents(t testing.TB, url string, k event.Key) []publishtest.Event {
	t.Helper()
	return eventReader(t, url)(t, k)
}

var someTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
