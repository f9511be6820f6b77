package kafka

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

func TestContract(t *testing.T)                { testContract(t, Binary) }
func TestContractStructured_Slow(t *testing.T) { testContract(t, Structured) }

func testContract(t *testing.T, mode ContentMode) {
	publishtest.Run(t, func(t *testing.T) publishtest.Bus { return contractBus(t, mode) })
}

// contractBus returns a bus with its own broker, behind a proxy that can drop the broker's
// responses.
func contractBus(t *testing.T, mode ContentMode) publishtest.Bus {
	kb, proxy := proxiedBroker(t)
	return publishtest.Bus{
		Open: func(t *testing.T, impatient bool) publish.Publisher {
			o := testOptions(proxy.Addr())
			o.ContentMode = mode
			o.Compression = recordbatch.None // so that compression does not shrink a message that is too large
			if impatient {
				o.AckTimeout = time.Second
			}
			return openBus(t, o)
		},
		Read:          func(t *testing.T, k event.Key) []publishtest.Event { return readEvents(t, kb.Addr(), k) },
		CompareAndSet: true,
		Exclusive:     true,
		TooLarge:      2 << 20,
		Kill:          func(*testing.T) { kb.Kill() },
		Start:         func(*testing.T) { kb.Start() },
		Mute:          func(*testing.T) { proxy.DropAnswers() },
		Unmute:        func(*testing.T) { proxy.Break(); proxy.Pass() },
		Freeze:        func(*testing.T) { kb.Freeze() },
		Thaw:          func(*testing.T) { kb.Thaw() },
	}
}

// proxiedBroker starts a broker and a proxy. Clients reach the broker through the proxy, and the
// broker's own address bypasses the proxy.
func proxiedBroker(t *testing.T) (*kafkabrokertest.Broker, *faultproxy.Proxy) {
	var proxy *faultproxy.Proxy
	kb := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.Proxied},
		Advertise: func(addr string) string {
			if proxy == nil {
				proxy = faultproxy.Start(t, addr)
			}
			return proxy.Addr()
		},
	})
	return kb, proxy
}

func testOptions(addr string) Options {
	return Options{
		Broker: broker.Options{Addrs: []string{addr}}, Cluster: publishtest.Cluster, Topic: "kuberelay",
		Compression: recordbatch.Zstd, Idempotent: true, AckTimeout: 30 * time.Second, Tombstones: true,
	}
}

// openBus opens a bus and closes it when the test ends.
func openBus(t testing.TB, o Options) *Bus {
	t.Helper()
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// readEvents reads all events of an object with an independent client.
func readEvents(t testing.TB, addr string, k event.Key) []publishtest.Event {
	t.Helper()
	var events []publishtest.Event
	for _, r := range readTopic(t, addr, "kuberelay") {
		if string(r.Key) != event.PartitionKey(publishtest.Cluster, k) || r.Value == nil {
			continue
		}
		d, err := decode(recordOf(r))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, publishtest.Event{ID: d.ID, Position: position(int(r.Partition), r.Offset), Data: string(d.Data)})
	}
	return events
}

// recordOf converts a record of franz-go to a record of package broker.
func recordOf(r *kgo.Record) broker.Record {
	record := broker.Record{Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, kafkago.Header{Key: h.Key, Value: h.Value})
	}
	return record
}

// readTopic reads a topic to its end. It returns nothing if the topic does not exist.
func readTopic(t testing.TB, addr, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	left := map[int32]int64{} // offsets to read up to
	for p, end := range endOffsets(ctx, t, addr, topic) {
		if end > 0 {
			left[int32(p)] = end
		}
	}
	var all []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if ok && r.Offset < end {
				all = append(all, r)
			}
			if r.Offset >= end-1 {
				delete(left, r.Partition)
			}
		})
	}
	return all
}

func endOffsets(ctx context.Context, t testing.TB, addr, topic string) []int64 {
	t.Helper()
	client, err := broker.New(broker.Options{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offsets, err := client.Offsets(ctx, topic)
	if errors.Is(err, broker.ErrNoTopic) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return offsets.End
}
