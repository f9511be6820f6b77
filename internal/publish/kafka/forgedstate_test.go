package kafka

import (
	"fmt"
	"maps"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// forgeState writes the state of a topic to a partition of the checkpoint topic.
func (h *hostile) forgeState(partition int, topic string, partitions, records int) {
	h.t.Helper()
	r := &kgo.Record{
		Topic: DefaultCheckpointTopic(h.opts.Topic), Partition: int32(partition), Key: []byte(record.StateKey(h.opts.Cluster, topic)),
		Value: fmt.Appendf(nil, `{"topic":%q,"partitions":%d,"records":%d}`, topic, partitions, records),
	}
	if err := h.client.ProduceSync(h.t.Context(), r).FirstErr(); err != nil {
		h.t.Fatal(err)
	}
}

// TestForgedState verifies that a forged topic state, with fewer or more partitions, does not move
// an object or its entries to another partition. In an earlier version, one such record permanently
// gave each object of the cluster a second partition.
func TestForgedState(t *testing.T) {
	const partitions, used = 5, 3
	for name, forge := range map[string]func(h *hostile, topic string){
		"of one partition":       func(h *hostile, topic string) { h.forgeState(0, topic, 1, 1) },
		"of fewer partitions":    func(h *hostile, topic string) { h.forgeState(0, topic, used-1, used-1) },
		"of more partitions":     func(h *hostile, topic string) { h.forgeState(0, topic, partitions, partitions) },
		"of too many partitions": func(h *hostile, topic string) { h.forgeState(0, topic, 1000, 1000) },
		"of no partition":        func(h *hostile, topic string) { h.forgeState(0, topic, 0, 0) },
		"of another topic":       func(h *hostile, _ string) { h.forgeState(0, "another", 1, 1) },
		"in another partition":   func(h *hostile, topic string) { h.forgeState(used-1, topic, 1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			_, w := newFakeWriters(t)
			w.opts.Partitions = used
			b := w.open()
			want := w.publishSome(b, "object-", 30)
			crash(b)
			for _, topic := range []string{w.opts.Topic, DefaultCheckpointTopic(w.opts.Topic)} {
				r, err := w.kafka().CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{
					Topics: []kafkago.TopicPartitionsConfig{{Name: topic, Count: partitions}},
				})
				if err != nil || r.Errors[topic] != nil {
					t.Fatal(err, r.Errors)
				}
			}
			h := newHostile(t, w.opts)
			for version := 2; version < 4; version++ { // version 3 follows a takeover that recorded the state again
				forge(h, w.opts.Topic)
				b = w.open()
				s := w.flushed(b)
				for p := range used {
					if got := s.recorder.Home(p); got != p {
						t.Errorf("the entries of partition %d are in partition %d", p, got)
					}
				}
				w.wantLoaded(b, want)
				for k, before := range maps.Clone(want) {
					want[k] = w.mustPublish(b, w.messageOf(k, version, before))
					if got := publish.Partition(want[k]); got != publish.Partition(before) {
						t.Fatalf("%s is in partition %d, and was in %d", k, got, publish.Partition(before))
					}
				}
				k := w.message(fmt.Sprint("new-", version), 1, 0).Key
				want[k] = w.mustPublish(b, w.messageOf(k, 1, 0))
				if got, is := publish.Partition(want[k]), binding.Partition([]byte(event.PartitionKey(w.opts.Cluster, k)), used); got != is {
					t.Errorf("%s is in partition %d, want %d", k, got, is)
				}
				crash(b)
			}
			w.wantLoaded(w.open(), want)
		})
	}
}

// maxMisplaced is the number of misplaced records that package takeover tolerates.
const maxMisplaced = 8

// TestForgedEntryBeforeTheFirstStart verifies that forged records in new topics do not keep the
// forwarder from using all partitions. The records are entries of events that the event topic
// doesn't have, a forged topic state, and a few events in a wrong partition.
func TestForgedEntryBeforeTheFirstStart(t *testing.T) {
	for name, forge := range map[string]func(h *hostile, n int, k event.Key){
		"entries": func(h *hostile, _ int, k event.Key) { h.forge(0, k, h.entryAt(position(0, 0), false)) },
		"state":   func(h *hostile, _ int, _ event.Key) { h.forgeState(0, h.opts.Topic, 1, 1) },
		"few records": func(h *hostile, n int, k event.Key) {
			if n < maxMisplaced {
				h.event(0, k, event.Created, "forged")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := newFakeWriters(t)
			w.opts.Partitions = 3
			for _, topic := range []string{w.opts.Topic, DefaultCheckpointTopic(w.opts.Topic)} {
				r, err := w.kafka().CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{
					Topic: topic, NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "cleanup.policy", ConfigValue: "compact"}},
				}}})
				if err != nil || r.Errors[topic] != nil {
					t.Fatal(err, r.Errors)
				}
			}
			h := newHostile(t, w.opts)
			for n := range 3 * maxMisplaced {
				forge(h, n, w.messageIn(1, fmt.Sprint("invented-", n)).Key)
			}
			b := w.open()
			want := w.messageIn(2, "web")
			if got := publish.Partition(w.mustPublish(b, want)); got != 2 {
				t.Errorf("an object is in partition %d, want 2", got)
			}
			crash(b)
		})
	}
}
