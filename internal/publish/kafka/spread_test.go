package kafka

import (
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// TestMorePartitionsOfTheCheckpointTopic verifies that entries stay in their partition if the
// checkpoint topic gets more partitions. Otherwise, an object's old entry would stay in the first
// partition while later entries go to another one. In an earlier version, the old entry counted as
// the last one after some restarts.
func TestMorePartitionsOfTheCheckpointTopic(t *testing.T) {
	w := newWriters(t, 7)
	w.opts.CheckpointTopic = DefaultCheckpointTopic(w.opts.Topic)
	if err := kafkabrokertest.Shared(t).CreateTopic(t.Context(), w.opts.CheckpointTopic, 3, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	b := w.open()
	want := w.publishSome(b, "object-", 40)
	crash(b)
	r, err := w.kafka().CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{
		Topics: []kafkago.TopicPartitionsConfig{{Name: w.opts.CheckpointTopic, Count: 5}},
	})
	if err != nil || r.Errors[w.opts.CheckpointTopic] != nil {
		t.Fatal(err, r.Errors)
	}
	b = w.open()
	for k, position := range want {
		want[k] = w.mustPublish(b, w.messageOf(k, 2, position))
	}
	crash(b)
	for range 3 { // the first takeover reads the events themselves
		b = w.open()
		w.wantLoaded(b, want)
		crash(b)
	}
}
