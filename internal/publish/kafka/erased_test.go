package kafka

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestErasedEntries verifies that a takeover restores an entry that another writer removed from the
// checkpoint topic, or replaced with the entry of an earlier event, if the event topic still has the
// event. It restores the entry once. In an earlier version, the next forwarder didn't know the object,
// and published no delete.
func TestErasedEntries(t *testing.T) {
	for name, c := range map[string]struct {
		forge  func(h *hostile, k event.Key, at uint64)
		counts int
	}{
		"a tombstone":                      {func(h *hostile, k event.Key, _ uint64) { h.forge(1, k, "") }, 1},
		"two tombstones":                   {func(h *hostile, k event.Key, _ uint64) { h.forge(1, k, ""); h.forge(1, k, "") }, 1},
		"a removal in its place":           {func(h *hostile, k event.Key, at uint64) { h.forge(1, k, h.entryAt(at, true)) }, 1},
		"an earlier removal":               {func(h *hostile, k event.Key, at uint64) { h.forge(1, k, h.entryAt(at-1, true)) }, 1},
		"a tombstone and a removal":        {func(h *hostile, k event.Key, at uint64) { h.forge(1, k, ""); h.forge(1, k, h.entryAt(at, true)) }, 1},
		"a removal and a tombstone":        {func(h *hostile, k event.Key, at uint64) { h.forge(1, k, h.entryAt(at, true)); h.forge(1, k, "") }, 1},
		"another state in its place":       {func(h *hostile, k event.Key, at uint64) { h.forge(1, k, h.entryAt(at, false)) }, 1},
		"an earlier state":                 {func(h *hostile, k event.Key, at uint64) { h.forge(1, k, h.entryAt(at-1, false)) }, 1},
		"a tombstone in another partition": {func(h *hostile, k event.Key, _ uint64) { h.forge(2, k, "") }, 0},
		"a tombstone, and a removal in another partition": {func(h *hostile, k event.Key, _ uint64) {
			h.forge(1, k, "")
			h.forge(2, k, h.entryAt(position(2, 0), true))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := newFakeWriters(t)
			registry := prometheus.NewRegistry()
			w.opts.Partitions, w.opts.Invalid = 3, publish.NewInvalid(registry, slog.New(slog.DiscardHandler))
			b := w.open()
			w.mustPublish(b, w.messageIn(1, "first"))
			m := w.messageIn(1, "web")
			at := w.mustPublish(b, m)
			w.mustPublish(b, w.messageIn(1, "newest")) // a takeover reads only what follows this event
			crash(b)
			b = w.open() // its markers are beyond the forged positions
			want, err := w.acked(b)
			if err != nil || len(want) != 3 {
				t.Fatalf("loaded %+v, %v", want, err)
			}
			crash(b)
			c.forge(newHostile(t, w.opts), m.Key, at)
			for range 2 {
				b = w.open()
				for range 2 {
					if got, err := w.acked(b); err != nil || !maps.Equal(got, want) {
						t.Errorf("loaded %+v, %v; want %+v", got, err, want)
					}
				}
				w.wantEntries(b, want)
				crash(b)
			}
			if got := countInvalid(t, registry); got != c.counts {
				t.Errorf("%d messages are invalid, want %d", got, c.counts)
			}
		})
	}
}

// TestErasedEntriesOfNoEvent verifies that a takeover does not restore an erased entry if it is not
// the entry of the object's last event.
func TestErasedEntriesOfNoEvent(t *testing.T) {
	_, w := newFakeWriters(t)
	registry := prometheus.NewRegistry()
	w.opts.Partitions, w.opts.Invalid = 3, publish.NewInvalid(registry, slog.New(slog.DiscardHandler))
	b := w.open()
	purged, changed, newest := w.messageIn(1, "purged"), w.messageIn(1, "changed"), w.messageIn(1, "newest")
	first := w.mustPublish(b, purged)
	deleted := w.mustPublish(b, w.deletion(purged.Key, first))
	want := map[event.Key]uint64{changed.Key: w.mustPublish(b, changed), newest.Key: w.mustPublish(b, newest)}
	w.flushed(b)
	if err := b.Purge(t.Context(), purged.Key, deleted); err != nil {
		t.Fatal(err)
	}
	h := newHostile(t, w.opts)
	elsewhere := w.messageIn(1, "elsewhere")
	h.event(2, elsewhere.Key, event.Created, "forged")
	w.load(b)
	w.wantLoaded(b, want) // this load reads the stray record, so the takeover doesn't
	w.flushed(b)
	crash(b)
	b = w.open()
	w.flushed(b)
	end := endOffsets(t.Context(), t, w.opts.Broker.Addrs[0], w.opts.Topic)
	crash(b)
	erase := func(home int, k event.Key, value string) { h.forge(home, k, value); h.forge(home, k, "") }
	erase(1, purged.Key, h.entryAt(first, false))
	for n, at := range []uint64{deleted, want[newest.Key], position(1, 1000), position(7, 0), position(0, 0)} {
		erase(1, w.messageIn(1, fmt.Sprint("invented-", n)).Key, h.entryAt(at, false))
	}
	for offset := range end[2] {
		erase(2, elsewhere.Key, fmt.Sprintf(`{"uid":"forged","resourceVersion":"1","topic":%q,"partition":2,"offset":%d}`, w.opts.Topic, offset))
		b = w.open()
		w.wantLoaded(b, want)
		crash(b)
	}
	h.forge(1, changed.Key, "")
	h.event(1, changed.Key, event.Created, "forged") // the topic still has an event of the object
	want[changed.Key] = position(1, endOffsets(t.Context(), t, w.opts.Broker.Addrs[0], w.opts.Topic)[1]-1)
	b = w.open()
	w.wantLoaded(b, want)
	crash(b)
	if got := countInvalid(t, registry); got != 0 {
		t.Errorf("%d entries were written again", got)
	}
}

// tombstone writes a tombstone of an object to a partition of the event topic.
func (h *hostile) tombstone(partition int, k event.Key) {
	h.t.Helper()
	r := &kgo.Record{Topic: h.opts.Topic, Partition: int32(partition), Key: []byte(event.PartitionKey(h.opts.Cluster, k))}
	if err := h.client.ProduceSync(h.t.Context(), r).FirstErr(); err != nil {
		h.t.Fatal(err)
	}
}

// TestATombstoneUponAState verifies that a takeover knows an object whose state is followed by a
// tombstone, which no forwarder writes. The result is the same as for an invalid record in the
// tombstone's place. In an earlier version, the tombstone hid the object, and no delete was
// published if the object was gone.
func TestATombstoneUponAState(t *testing.T) {
	_, w := newFakeWriters(t)
	b := w.open()
	m := w.messageIn(1, "web")
	w.mustPublish(b, m)
	newest := w.messageIn(1, "newest")
	want := map[event.Key]uint64{newest.Key: w.mustPublish(b, newest)}
	h := newHostile(t, w.opts)
	crash(b)
	h.tombstone(1, m.Key)
	foreign := want[newest.Key] + 1
	want[m.Key] = foreign
	for range 2 {
		b = w.open()
		for range 2 {
			w.wantLoaded(b, want)
			if all, err := w.acked(b); err != nil || !all[m.Key].Foreign || all[m.Key].UID != m.Acked.UID {
				t.Errorf("loaded %+v, %v", all[m.Key], err)
			}
		}
		crash(b)
	}
	h.forge(1, m.Key, "")
	b = w.open()
	w.wantLoaded(b, want)
	deleted := w.mustPublish(b, w.deletion(m.Key, foreign))
	want[m.Key] = deleted
	w.wantLoaded(b, want)
	crash(b)
	h.tombstone(1, m.Key) // as after a purge by a forwarder that writes no tombstone with the delete
	delete(want, m.Key)
	w.wantLoaded(w.open(), want)
}

// maxLookups has the same value as in package takeover.
const maxLookups = 10_000

// TestErasedEntriesAreBounded verifies that a takeover looks up a limited number of events for
// erased entries, and logs that it reached the limit. Another writer can erase any number of
// entries.
func TestErasedEntriesAreBounded(t *testing.T) {
	_, w := newFakeWriters(t)
	logged := &strings.Builder{}
	w.opts.Partitions = 1
	b := w.open()
	m := w.message("web", 1, 0)
	want := map[event.Key]uint64{m.Key: w.mustPublish(b, m)}
	crash(b)
	crash(w.open())
	h := newHostile(t, w.opts)
	var all []*kgo.Record
	for n := range maxLookups + 1 {
		r := kgo.Record{
			Topic: DefaultCheckpointTopic(w.opts.Topic), Key: []byte(event.PartitionKey(w.opts.Cluster, w.message(fmt.Sprint("invented-", n), 1, 0).Key)),
			Value: []byte(h.entryAt(want[m.Key], false)),
		}
		tombstone := r
		tombstone.Value = nil
		all = append(all, &r, &tombstone)
	}
	if err := h.client.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w.opts.Logger = slog.New(slog.NewTextHandler(logged, nil))
	b = w.open()
	w.wantLoaded(b, want)
	crash(b)
	if text := fmt.Sprintf("entries=%d looked_up=%d", maxLookups+1, maxLookups); !strings.Contains(logged.String(), text) {
		t.Errorf("the log has no %q:\n%s", text, logged)
	}
}
