package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// forge writes a record of an object to a partition of the checkpoint topic. An empty value
// is a tombstone.
func (h *hostile) forge(partition int, k event.Key, value string) {
	h.t.Helper()
	r := &kgo.Record{Topic: DefaultCheckpointTopic(h.opts.Topic), Partition: int32(partition), Key: []byte(event.PartitionKey(h.opts.Cluster, k))}
	if value != "" {
		r.Value = []byte(value)
	}
	if err := h.client.ProduceSync(h.t.Context(), r).FirstErr(); err != nil {
		h.t.Fatal(err)
	}
}

// entryAt returns the value of an entry that claims a position for version 7 of an object, or for
// its delete.
func (h *hostile) entryAt(position uint64, deleted bool) string {
	return fmt.Sprintf(`{"uid":"forged","resourceVersion":"7","deleted":%t,"topic":%q,"partition":%d,"offset":%d}`,
		deleted, h.opts.Topic, publish.Partition(position), publish.Offset(position))
}

// TestForgedEntries verifies that a load ignores an entry that another writer adds to the
// checkpoint topic during a session. The next load finds the correct entry in its place. An earlier
// version answered a forged entry of an unknown object at each refresh, without effect.
func TestForgedEntries(t *testing.T) {
	w := newWriters(t, 3)
	registry := prometheus.NewRegistry()
	w.opts.Invalid = publish.NewInvalid(registry, slog.New(slog.DiscardHandler))
	b := w.open()
	h := newHostile(t, w.opts)
	web := w.messageIn(1, "web")
	at := w.mustPublish(b, web)
	gone := w.messageIn(1, "gone")
	deleted := w.mustPublish(b, w.deletion(gone.Key, w.mustPublish(b, gone)))
	purged := w.messageIn(1, "purged")
	wasAt := w.mustPublish(b, w.deletion(purged.Key, w.mustPublish(b, purged)))
	w.mustPublish(b, w.messageIn(1, "newest"))
	if err := b.Purge(t.Context(), purged.Key, wasAt); err != nil {
		t.Fatal(err)
	}
	w.load(b) // what the takeover found
	want, err := w.acked(b)
	if err != nil || len(want) != 3 {
		t.Fatalf("loaded %+v, %v", want, err)
	}
	const home, other = 1, 2
	for name, forge := range map[string]func(){
		"of an unknown object":                func() { h.forge(home, w.message("invented", 1, 0).Key, h.entryAt(position(0, 0), false)) },
		"a delete of an unknown object":       func() { h.forge(other, w.message("invented", 1, 0).Key, h.entryAt(position(1, 1), true)) },
		"of a purged object":                  func() { h.forge(home, purged.Key, h.entryAt(wasAt, true)) },
		"of another state":                    func() { h.forge(home, web.Key, h.entryAt(at, false)) },
		"of a delete":                         func() { h.forge(home, web.Key, h.entryAt(at, true)) },
		"at another position":                 func() { h.forge(home, web.Key, h.entryAt(position(1, 0), true)) },
		"in another partition":                func() { h.forge(other, web.Key, h.entryAt(at, true)) },
		"of a deleted object":                 func() { h.forge(home, gone.Key, h.entryAt(position(1, 0), false)) },
		"of a delete as one of a live object": func() { h.forge(home, gone.Key, h.entryAt(deleted, false)) },
		"a tombstone":                         func() { h.forge(home, web.Key, "") },
		"garbage":                             func() { h.forge(home, web.Key, "{") },
		"garbage of an unknown object":        func() { h.forge(home, w.message("invented", 1, 0).Key, "[]") },
	} {
		t.Run(name, func(t *testing.T) {
			forge()
			for n := range 2 {
				if got, err := w.acked(b); err != nil || !maps.Equal(got, want) {
					t.Errorf("load %d gives %+v, %v; want %+v", n, got, err, want)
				}
			}
			w.wantEntries(b, want)
		})
	}
	if got := countInvalid(t, registry); got != 12 {
		t.Errorf("%d messages are invalid, want one for each entry", got)
	}
	end := endOffsets(t.Context(), t, w.opts.Broker.Addrs[0], DefaultCheckpointTopic(w.opts.Topic))
	w.load(b)
	if now := endOffsets(t.Context(), t, w.opts.Broker.Addrs[0], DefaultCheckpointTopic(w.opts.Topic)); !slices.Equal(now, end) {
		t.Errorf("a load at rest wrote to the checkpoint topic: it ends at %v, before at %v", now, end)
	}
	crash(b)
	if got, err := w.acked(w.open()); err != nil || !maps.Equal(got, want) {
		t.Errorf("the next writer loads %+v, %v; want %+v", got, err, want)
	}
}

// TestForgedEntryThatATakeoverBelieved verifies that a forged entry disappears with the delete of
// its object, even if a takeover trusted the entry. The entry is for an unknown object, in a
// partition of the checkpoint topic that has no entries of the object. In an earlier version, each
// load yielded the entry again.
func TestForgedEntryThatATakeoverBelieved(t *testing.T) {
	w := newWriters(t, 3)
	crash(w.open())
	crash(w.open()) // its markers are beyond the forged position
	h := newHostile(t, w.opts)
	invented, at := w.messageIn(1, "invented"), position(0, 0)
	h.forge(2, invented.Key, h.entryAt(at, false))
	b := w.open()
	if got := w.load(b); got[invented.Key] != at {
		t.Fatalf("the takeover found %v", got)
	}
	want, err := w.acked(b)
	if err != nil || want[invented.Key].Position != at {
		t.Fatalf("loaded %+v, %v", want, err)
	}
	deleted := w.mustPublish(b, w.deletion(invented.Key, at))
	w.wantLoaded(b, map[event.Key]uint64{invented.Key: deleted})
	left := map[event.Key]uint64{} // the forged entry can change the partition of new objects
	for n := 0; len(left) == 0 || publish.Partition(left[w.message(fmt.Sprint("newest-", n-1), 1, 0).Key]) != publish.Partition(deleted); n++ {
		newest := w.message(fmt.Sprint("newest-", n), 1, 0)
		left[newest.Key] = w.mustPublish(b, newest)
	}
	await(t, "the entry of the newest event is recorded, and the delete can be purged", func() error { return b.Purge(t.Context(), invented.Key, deleted) })
	for range 2 {
		w.wantLoaded(b, left)
		crash(b)
		b = w.open()
	}
	w.wantLoaded(b, left)
}

// TestForgedEntryBesideTheRightOne verifies that a takeover finds an object's entry although
// another partition of the checkpoint topic has a forged entry of the object.
func TestForgedEntryBesideTheRightOne(t *testing.T) {
	w := newWriters(t, 3)
	b := w.open()
	var keys []event.Key
	for n := range 10 {
		m := w.messageIn(1, fmt.Sprint("web-", n))
		w.mustPublish(b, m)
		keys = append(keys, m.Key)
	}
	crash(b)
	b = w.open() // its markers are beyond the forged position
	want, err := w.acked(b)
	if err != nil || len(want) != len(keys) {
		t.Fatalf("loaded %+v, %v", want, err)
	}
	crash(b)
	h := newHostile(t, w.opts)
	for n, k := range keys {
		h.forge(2*(n%2), k, h.entryAt(position(2*(n%2), 0), true))
	}
	b = w.open()
	for range 2 { // the second load removes the forged entries
		if got, err := w.acked(b); err != nil || !maps.Equal(got, want) {
			t.Errorf("loaded %+v, %v; want %+v", got, err, want)
		}
	}
	w.wantEntries(b, want)
}

// TestForgedEntryOfABusyObject verifies that a load keeps the forged entry of an object while the
// object has an event in flight. The next load after the acknowledgement replaces the entry.
func TestForgedEntryOfABusyObject(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	m := w.message("web", 1, 0)
	at := w.mustPublish(b, m)
	want, err := w.acked(b)
	if err != nil {
		t.Fatal(err)
	}
	s := w.flushed(b)
	h := newHostile(t, w.opts)
	h.forge(0, m.Key, h.entryAt(at, true))
	id := index.Of([]byte(event.PartitionKey(w.opts.Cluster, m.Key)))
	if _, _, ok := s.index.Begin(id, at); !ok {
		t.Fatal("busy already")
	}
	w.load(b)
	w.flushed(b)
	s.index.End(id, 0)
	end := endOffsets(t.Context(), t, w.opts.Broker.Addrs[0], DefaultCheckpointTopic(w.opts.Topic))
	if got, err := w.acked(b); err != nil || !maps.Equal(got, want) {
		t.Errorf("loaded %+v, %v; want %+v", got, err, want)
	}
	w.flushed(b)
	if now := endOffsets(t.Context(), t, w.opts.Broker.Addrs[0], DefaultCheckpointTopic(w.opts.Topic)); now[0] != end[0]+1 {
		t.Errorf("the checkpoint topic ends at %v, and before the second load at %v", now, end)
	}
	w.wantEntries(b, want)
}

// countInvalid returns the number of invalid messages for all reasons.
func countInvalid(t *testing.T, registry *prometheus.Registry) (n int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		n += int(m.GetCounter().GetValue())
	}
	return n
}

// wantEntries checks that the checkpoint topic has one entry of each object, and that the entry is
// correct.
func (w *writers) wantEntries(b *Bus, want map[event.Key]event.Acked) {
	w.t.Helper()
	w.flushed(b)
	got := map[event.Key]event.Acked{}
	last := map[string]entry{}
	for p, end := range endOffsets(w.t.Context(), w.t, w.opts.Broker.Addrs[0], DefaultCheckpointTopic(w.opts.Topic)) {
		err := b.stored.ReadCheckpoint(w.t.Context(), nil, p, end, func(r broker.Record, c record.Checkpoint) error {
			if c.Kind == record.OfEvent || c.Kind == record.Removed {
				last[fmt.Sprint(p, " ", string(r.Key))] = c.Entry
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for key, e := range last {
		_, key, _ = strings.Cut(key, " ")
		_, k, err := event.ParsePartitionKey(key)
		if e == (entry{}) || err != nil {
			continue
		}
		if got[k] != (event.Acked{}) {
			w.t.Errorf("%s has two entries", k)
		}
		got[k] = e.Acked()
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("the checkpoint topic has %+v, want %+v", got, want)
	}
}

// TestAnUnexpectedEventIsRecordedAgain verifies that a conflict writes the entry of the stored
// event again. A forwarder whose checkpoint lacks an event finds the event by a conflict, and the
// checkpoint topic may lack its entry too.
func TestAnUnexpectedEventIsRecordedAgain(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	m := w.message("web", 1, 0)
	at := w.mustPublish(b, m)
	wantEntries := func(want int) {
		t.Helper()
		w.flushed(b)
		entries := 0
		for _, r := range readTopic(t, w.opts.Broker.Addrs[0], DefaultCheckpointTopic(w.opts.Topic)) {
			if string(r.Key) == event.PartitionKey(w.opts.Cluster, m.Key) {
				entries++
			}
		}
		if entries != want {
			t.Errorf("the checkpoint topic has %d entries of the object, want %d", entries, want)
		}
	}
	wantEntries(1)
	var conflict *publish.ConflictError
	if _, err := w.publish(b, w.message("web", 2, 0)); !errors.As(err, &conflict) || conflict.Bus.Position != at {
		t.Fatalf("publish: %v, want a conflict with the event at %d", err, at)
	}
	wantEntries(2)
	w.mustPublish(b, w.message("web", 2, at))
	wantEntries(3)
}
