package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// record is a record of an event topic, read without the forwarder's code.
type record struct {
	partition  int
	offset     int64
	attributes map[string]string
	data       json.RawMessage
	tombstone  bool // a tombstone follows the record
}

// kind returns the last part of the event type.
func (r record) kind() string {
	t := r.attributes["type"]
	return t[strings.LastIndexByte(t, '.')+1:]
}

// readTopic reads a topic from its start to its current end. It returns the records by key.
func readTopic(ctx context.Context, addr, topic string) (map[string][]record, error) {
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(addr), Transport: transport}
	meta, err := client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	if err == nil {
		err = meta.Topics[0].Error
	}
	if err != nil {
		return nil, err
	}
	all := map[string][]record{}
	for _, p := range meta.Topics[0].Partitions {
		offsets, err := client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: {kafkago.LastOffsetOf(p.ID)}}})
		if err != nil {
			return nil, err
		}
		if err := errors.Join(p.Error, offsets.Topics[topic][0].Error); err != nil {
			return nil, err // without this check, the topic would seem empty
		}
		end := offsets.Topics[topic][0].LastOffset
		if err := readPartition(ctx, addr, topic, p.ID, end, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readPartition(ctx context.Context, addr, topic string, partition int, end int64, all map[string][]record) error {
	if end == 0 {
		return nil
	}
	r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: partition, MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 50 * time.Millisecond})
	defer r.Close()
	for {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("read partition %d of %s: %w", partition, topic, err)
		}
		of := all[string(m.Key)]
		if len(m.Value) == 0 && !strings.Contains(string(m.Key), "/_control/") {
			if len(of) == 0 {
				return fmt.Errorf("the first record of %s is a tombstone", m.Key)
			}
			of[len(of)-1].tombstone = true
		} else if got, err := parseRecord(m); err != nil {
			return err
		} else {
			all[string(m.Key)] = append(of, got)
		}
		if m.Offset == end-1 {
			return nil
		}
	}
}

// parseRecord parses a record according to the CloudEvents Kafka binding, in either content mode.
func parseRecord(m kafkago.Message) (record, error) {
	r := record{partition: m.Partition, offset: m.Offset, attributes: map[string]string{}, data: m.Value}
	for _, h := range m.Headers {
		if h.Key == "content-type" && strings.HasPrefix(string(h.Value), "application/cloudevents+json") {
			var all map[string]json.RawMessage
			if err := json.Unmarshal(m.Value, &all); err != nil {
				return record{}, err
			}
			r.data = all["data"]
			delete(all, "data")
			for name, value := range all {
				var text string
				if err := json.Unmarshal(value, &text); err != nil {
					return record{}, fmt.Errorf("attribute %s: %w", name, err)
				}
				r.attributes[name] = text
			}
			return r, nil
		}
		if h.Key == "kuberelay_data" { // belongs to a control record, which has no value
			r.data = h.Value
			continue
		}
		r.attributes[strings.TrimPrefix(h.Key, "ce_")] = string(h.Value)
	}
	return r, nil
}

// topic is a topic under test.
type topic struct {
	t          *testing.T
	addr, name string
}

func (s topic) read() map[string][]record {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	all, err := readTopic(ctx, s.addr, s.name)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// kinds returns the types of the events, separated by spaces.
func kinds(all []record) string {
	words := make([]string, len(all))
	for i, r := range all {
		words[i] = r.kind()
	}
	return strings.Join(words, " ")
}

func key(resource, namespace, name string) string {
	return strings.Join([]string{clusterName, "core", resource, namespace, name}, "/")
}

// awaitKinds waits until the events of each key have these types, in order.
func (s topic) awaitKinds(want map[string]string) map[string][]record {
	s.t.Helper()
	var all map[string][]record
	poll.Try(s.t, "the topic has the expected records", func(ctx context.Context) (err error) {
		if all, err = readTopic(ctx, s.addr, s.name); err != nil {
			return err
		}
		for key, want := range want {
			if got := kinds(all[key]); got != want {
				return fmt.Errorf("%s: got %q, want %q", key, got, want)
			}
		}
		return nil
	})
	return all
}

// events counts the records, except writer markers and consistency points.
func events(all map[string][]record) int {
	n := 0
	for key, records := range all {
		if !strings.Contains(key, "/_control/writer/") && !strings.Contains(key, "/_control/resolved/") {
			n += len(records)
		}
	}
	return n
}

// checkOrder checks every record. The records of an object must be in one partition, adjacent
// records must have different ids, and versions must not decrease within a UID. It skips the keys of
// consistency points, which are in every partition.
func (s topic) checkOrder() {
	s.t.Helper()
	for key, all := range s.read() {
		if strings.Contains(key, "/_control/resolved/") {
			continue
		}
		for n := 1; n < len(all); n++ {
			before, after := all[n-1], all[n]
			switch {
			case before.partition != after.partition:
				s.t.Errorf("%s is in the partitions %d and %d", key, before.partition, after.partition)
			case before.attributes["id"] == after.attributes["id"]:
				s.t.Errorf("%s: id %s at %d and again at %d", key, after.attributes["id"], before.offset, after.offset)
			case before.attributes["uid"] == after.attributes["uid"] && before.attributes["sequence"] > after.attributes["sequence"]:
				s.t.Errorf("%s: sequence %s, then %s at %d", key, before.attributes["sequence"], after.attributes["sequence"], after.offset)
			}
		}
	}
}

// checkUnique checks that no event of an object is repeated.
func (s topic) checkUnique() {
	s.t.Helper()
	seen := map[string]string{}
	for key, all := range s.read() {
		if strings.Contains(key, "/_control/") {
			continue
		}
		for _, r := range all {
			id, place := r.attributes["id"], fmt.Sprintf("%d:%d", r.partition, r.offset)
			if before, ok := seen[id]; ok {
				s.t.Errorf("%s: id %s at %s and again at %s", key, id, before, place)
			}
			seen[id] = place
		}
	}
}
