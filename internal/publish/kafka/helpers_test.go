package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// limit bounds every wait. Only a failing test reaches it.
const limit = 3 * time.Minute

func position(partition int, offset int64) uint64 { return publish.PositionOf(partition, offset) }

// isControl reports whether a record belongs to no object, like a marker, a claim, or a consistency
// point.
func isControl(r *kgo.Record) bool { return strings.Contains(string(r.Key), "/_control/") }

// isTombstone reports whether a record is the tombstone of an object.
func isTombstone(r *kgo.Record) bool { return r.Value == nil && !isControl(r) }

// kadmDeleteRecords deletes the records of partition 0 below an offset.
func kadmDeleteRecords(t *testing.T, addr, topic string, before int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: before}}}}
	request.TimeoutMillis = int32(limit.Milliseconds())
	response, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if code := response.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("delete records: error %d", code)
	}
}

// decode returns the event in a record.
func decode(r broker.Record) (*event.Message, error) { return binding.Decode(r.Headers, r.Value) }

// attributesOf returns the attributes of the event in a record.
func attributesOf(r broker.Record) (func(string) string, error) {
	get, _, err := binding.Attributes(r.Headers, r.Value)
	return get, err
}
