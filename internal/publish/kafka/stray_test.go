package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// event writes an event of an object in version 1 to a partition of the event topic.
func (h *hostile) event(partition int, k event.Key, typ event.Type, uid string) {
	h.t.Helper()
	r := &kgo.Record{Topic: h.opts.Topic, Partition: int32(partition), Key: []byte(event.PartitionKey(h.opts.Cluster, k)), Value: []byte("{}")}
	for name, value := range map[string]string{
		"id": "i", "specversion": "1.0", "type": string(typ), "uid": uid, "resourceversion": "1", "sequence": "0000.00000000000000000001",
	} {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	if err := h.client.ProduceSync(h.t.Context(), r).FirstErr(); err != nil {
		h.t.Fatal(err)
	}
}

// TestARecordInAnotherPartition verifies that a takeover prefers an object's own partition to
// another writer's record in a partition that has none of the object's events. In an earlier
// version, that record counted as the last event of the object. A forged delete in the right
// partition then counted as an earlier event, and hid the object until its next change.
func TestARecordInAnotherPartition(t *testing.T) {
	for name, isRecorded := range map[string]bool{"of an object in the checkpoint": true, "of an object that is read": false} {
		t.Run(name, func(t *testing.T) {
			_, w := newFakeWriters(t)
			w.opts.Partitions = 3
			b := w.open()
			web := w.messageIn(1, "web")
			want := w.publishSome(b, "object-", 10)
			want[web.Key] = w.mustPublish(b, web)
			w.flushed(b)
			crash(b)
			h := newHostile(t, w.opts)
			if !isRecorded {
				for p := range w.opts.Partitions { // no marker vouches for the entries
					h.write(DefaultCheckpointTopic(w.opts.Topic), event.WriterPartitionKey(w.opts.Cluster, w.opts.Topic, p), "")
				}
			}
			h.event(0, web.Key, event.Updated, web.Acked.UID)
			h.event(2, web.Key, event.Updated, web.Acked.UID)
			invented := w.messageIn(1, "invented")
			h.event(2, invented.Key, event.Created, "forged")
			b = w.open()
			got := w.load(b)
			if got[web.Key] != want[web.Key] {
				t.Errorf("the object is at %d, want %d", got[web.Key], want[web.Key])
			}
			if publish.Partition(got[invented.Key]) != 2 {
				t.Errorf("an object without another record is at %d", got[invented.Key])
			}
			h.event(1, web.Key, event.Deleted, web.Acked.UID)
			h.event(1, invented.Key, event.Updated, "forged")
			for k, position := range w.load(b) {
				if isForged := k == web.Key || k == invented.Key; isForged && publish.Partition(position) != 1 {
					t.Errorf("%s is at %d, want a forged event", k, position)
				}
			}
			all := w.load(b)
			web = w.messageOf(web.Key, 2, all[web.Key])
			all[web.Key] = w.mustPublish(b, web)
			crash(b)
			w.wantLoaded(w.open(), all)
		})
	}
}
