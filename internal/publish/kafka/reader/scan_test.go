package reader

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

// scanned returns the records that one step yields, sorted.
func scanned(t *testing.T, s *Scan) []string {
	t.Helper()
	var all []string
	err := s.Next(t.Context(), publish.SubscribeOptions{
		Foreign:   func(d publish.Delivery, _ error) { all = append(all, "foreign "+d.Subject) },
		Tombstone: func(k event.Key, _ publish.Delivery) { all = append(all, "tombstone "+k.Name) },
	}, func(m *event.Message, d publish.Delivery) error {
		if !d.Whole {
			t.Errorf("%s at %s: nothing is missing before it", m.ID, d.Place())
		}
		all = append(all, m.ID)
		return nil
	})
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
	w.Tombstone(cluster, configMaps.Key("default", "gone"))
	w.Put(state(t, "other", "a", 1))
	if got, want := scanned(t, s), []string{"tombstone gone", "uid-of-a.1", "uid-of-gone.1", "uid-of-gone.deleted"}; !slices.Equal(got, want) {
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

	lasts := map[event.Key]uint64{}
	if err := s.Lasts(t.Context(), func(k event.Key, position uint64) { lasts[k] = position }); err != nil {
		t.Fatal(err)
	}
	if want := (map[event.Key]uint64{configMaps.Key("default", "a"): at}); !maps.Equal(lasts, want) {
		t.Errorf("got %v, want %v", lasts, want)
	}
}

func TestAt(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "at", 2, nil)
	b := open(t, Options{Topic: w.Topic, Cluster: cluster}, kafkabrokertest.Shared(t).Addr())
	k := configMaps.Key("default", "a")
	at := w.Put(state(t, cluster, "a", 7))
	tombstone := w.Tombstone(cluster, k)
	got, err := b.At(t.Context(), k, at)
	if err != nil || got.Acked.ResourceVersion != "7" || got.Acked.Position != at || got.Object == nil || got.Object.Name != "a" {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, position := range map[string]uint64{"a tombstone": tombstone, "after the end": tombstone + 1} {
		if got, err := b.At(t.Context(), k, position); err != nil || got.Acked.UID != "" {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	if got, err := b.At(t.Context(), configMaps.Key("default", "b"), at); err != nil || got.Acked.UID != "" {
		t.Errorf("of another object: got %+v, %v", got, err)
	}
}

// TestScanOfATopicThatChanges verifies that a scan returns ErrChanged after its topic was deleted.
func TestScanOfATopicThatChanges(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "changes", 1, nil)
	b := open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr())
	s := b.Scan()
	put(t, w, "a", 1, 2, 3)
	scanned(t, s)
	client := &kafka.Client{Addr: kafka.TCP(kafkabrokertest.Shared(t).Addr())}
	if _, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{w.Topic}}); err != nil {
		t.Fatal(err)
	}
	err := s.Next(t.Context(), publish.SubscribeOptions{}, func(*event.Message, publish.Delivery) error { return nil })
	for deadline := time.Now().Add(limit); err == nil && time.Now().Before(deadline); { // the brokers take a moment to delete the topic
		err = s.Next(t.Context(), publish.SubscribeOptions{}, func(*event.Message, publish.Delivery) error { return nil })
	}
	if !errors.Is(err, ErrChanged) {
		t.Errorf("got %v, want that it changed", err)
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
	s.Patience = 100 * time.Millisecond
	if err := s.Next(t.Context(), publish.SubscribeOptions{}, nil); err == nil {
		t.Error("no error")
	}
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
