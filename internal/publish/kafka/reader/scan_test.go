package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

// scanned returns the records that one step yields, sorted.
func scanned(t *testing.T, s *Scan) []string {
	t.Helper()
	var all []string
	err := s.NextRaw(t.Context(), func(r Record, d publish.Delivery) error {
		if !d.Whole {
			t.Errorf("%s at %s: nothing is missing before it", d.Subject, d.Place())
		}
		attribute, _, err := binding.Attributes(r.Headers, r.Value)
		if errors.Is(err, binding.ErrTombstone) {
			all = append(all, "tombstone "+d.Subject)
			return nil
		}
		all = append(all, attribute("id"))
		return err
	}, func(d publish.Delivery, err error) { t.Errorf("refused at %s: %v", d.Place(), err) })
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestScan(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "scan", 3, nil)
	b := open(t, Options{Topic: w.Topic, Cluster: cluster}, kafkabrokertest.Shared(t).Addr())
	s := b.Scan()
	if got := scanned(t, s); len(got) != 0 {
		t.Errorf("got %q of an empty topic", got)
	}
	put(t, w, "a", 1)
	put(t, w, "gone", 1, 0)
	gone := configMaps.Key("default", "gone")
	w.Tombstone(cluster, gone)
	w.Put(state(t, "other", "b", 1))
	want := []string{"tombstone " + event.PartitionKey(cluster, gone), "uid-of-a.1", "uid-of-b.1", "uid-of-gone.1", "uid-of-gone.deleted"}
	if got := scanned(t, s); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	put(t, w, "a", 2)
	at := w.Put(state(t, cluster, "a", 3))
	if got, want := scanned(t, s), ids("a", 2, 3); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := scanned(t, s); len(got) != 0 {
		t.Errorf("got %q again", got)
	}
	if got := s.Ends(); len(got) != 3 || got[publish.Log{Topic: w.Topic, Partition: publish.Partition(at)}] != at {
		t.Errorf("read up to %v, want %d in its partition", got, at)
	}
}

func TestRawAt(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "at", 2, nil)
	b := open(t, Options{Topic: w.Topic, Cluster: cluster}, kafkabrokertest.Shared(t).Addr())
	k := configMaps.Key("default", "a")
	at := w.Put(state(t, cluster, "a", 7))
	tombstone := w.Tombstone(cluster, k)
	got, found, err := b.RawAt(t.Context(), w.Topic, at)
	if attribute, _, _ := binding.Attributes(got.Headers, got.Value); err != nil || !found || string(got.Key) != event.PartitionKey(cluster, k) || attribute("id") != "uid-of-a.7" {
		t.Errorf("got %+v, %v, %v", got, found, err)
	}
	if got, found, err := b.RawAt(t.Context(), w.Topic, tombstone); err != nil || !found || got.Value != nil {
		t.Errorf("a tombstone: got %+v, %v, %v", got, found, err)
	}
	for topic, position := range map[string]uint64{w.Topic: tombstone + 1, w.Topic + "-missing": at} {
		if got, found, err := b.RawAt(t.Context(), topic, position); err != nil || found {
			t.Errorf("topic %s, position %d: got %+v, %v, %v", topic, position, got, found, err)
		}
	}
}

// TestScanOfATopicThatChanges verifies that a scan returns ErrChanged after its topic was deleted.
func TestScanOfATopicThatChanges(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "changes", 1, nil)
	b := open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr())
	s := b.Scan()
	put(t, w, "a", 1, 2, 3)
	scanned(t, s)
	client := kafkabrokertest.Client(t, kafkabrokertest.Shared(t).Addr())
	if _, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{w.Topic}}); err != nil {
		t.Fatal(err)
	}
	next := func() error {
		return s.NextRaw(t.Context(), func(Record, publish.Delivery) error { return nil }, func(publish.Delivery, error) {})
	}
	err := next()
	for deadline := time.Now().Add(limit); err == nil && time.Now().Before(deadline); { // the brokers take a moment to delete the topic
		err = next()
	}
	if !errors.Is(err, ErrChanged) {
		t.Errorf("got %v, want that it changed", err)
	}
}

// TestShorterPartitionStartsNoRead verifies that a step that finds a shorter partition reads no other partition.
// Such a read once continued after the step had returned, and called yield then.
func TestShorterPartitionStartsNoRead(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "shorter", 8, nil)
	s := open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr()).Scan()
	scanned(t, s)
	s.partitions[publish.Log{Topic: w.Topic, Partition: 3}].next = 7
	var reads atomic.Int64
	for range 10 {
		err := s.step(t.Context(), func(context.Context, *partition, int64, func()) error { reads.Add(1); return nil })
		if !errors.Is(err, ErrChanged) {
			t.Fatalf("got %v, want that it changed", err)
		}
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("%d reads of other partitions were started", n)
	}
}

// TestScanOfAFrozenBroker verifies that a scan fails instead of waiting forever for a broker that
// returns nothing.
func TestScanOfAFrozenBroker(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{})
	w := readertest.NewTopic(t, b, "frozen", 1, nil)
	put(t, w, "a", 1)
	s := open(t, Options{Topic: w.Topic}, b.Addr()).Scan()
	scanned(t, s)
	b.Freeze()
	defer b.Thaw()
	s.patience = 100 * time.Millisecond
	if err := s.NextRaw(t.Context(), nil, nil); err == nil {
		t.Error("no error")
	}
}

// TestManyTopics verifies that the topics of resources are looked up at the same time. An earlier version
// looked them up one after the other, so with many topics and a distant broker, tail and get timed out.
func TestManyTopics(t *testing.T) {
	const topics = 16
	var proxy *faultproxy.Proxy
	b := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.Proxied},
		Advertise: func(addr string) string { proxy = faultproxy.Start(t, addr); return proxy.Addr() },
	})
	for n := range topics {
		if err := b.CreateTopic(t.Context(), fmt.Sprintf("many.core.r%d", n), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	bus := open(t, Options{Topic: "many.{group}.{resource}"}, proxy.Addr())
	scanned(t, bus.Scan()) // connects
	proxy.Freeze()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bus.Scan().NextRaw(ctx, nil, nil) }()
	poll.Holds(t, "requests for all topics", func() bool {
		if len(ended) > 0 {
			t.Fatalf("the scan ended after %d requests: %v", proxy.Held(), <-ended)
		}
		return proxy.Held() >= topics
	})
	cancel()
	<-ended
}

// TestWhole verifies that an offset without a record clears Whole, because a record may have been
// removed there.
func TestWhole(t *testing.T) {
	b := &Bus{}
	for _, tc := range []struct {
		name    string
		from    int64
		offsets []int64
		want    bool
	}{
		{"from the start", 0, []int64{0, 1, 2}, true},
		{"the start is gone", 0, []int64{1, 2}, false},
		{"a gap", 0, []int64{0, 2, 3}, false},
		{"from the middle", 1, []int64{1, 2}, false},
	} {
		p := b.newPartition(publish.Log{}, tc.from)
		for _, offset := range tc.offsets {
			p.pass(broker.Record{Offset: offset})
		}
		if p.whole != tc.want {
			t.Errorf("%s: got %t", tc.name, p.whole)
		}
	}
}
