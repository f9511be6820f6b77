package broker

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// TestTopicID verifies that a topic keeps its ID, and that a topic that was deleted and recreated has
// another one.
func TestTopicID(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	name := kafkabrokertest.Topic(t, b, "id", 2, nil)
	c := newClient(t, b.Addr())
	id := func() string {
		t.Helper()
		id, err := c.TopicID(within(t), name)
		if err != nil || len(id) != 16 {
			t.Fatalf("got %x, %v", id, err)
		}
		return id
	}
	first := id()
	if again := id(); again != first {
		t.Errorf("got %x, want %x", again, first)
	}
	c.deleteTopic(t, name)
	if got, err := c.TopicID(within(t), name); !errors.Is(err, ErrNoTopic) {
		t.Errorf("got %x, %v, want %v", got, err, ErrNoTopic)
	}
	if err := b.CreateTopic(t.Context(), name, 2, nil); err != nil {
		t.Fatal(err)
	}
	if second := id(); second == first {
		t.Errorf("the new topic has the ID of the old one")
	}
}

// TestTopicIDBeforeKafka28 verifies that TopicID returns no ID, and no error, if the broker has no topic IDs.
func TestTopicIDBeforeKafka28(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.MaxVersions(kversion.V2_7_0()), kfake.SeedTopics(1, "topic"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c := newClient(t, cluster.ListenAddrs()[0])
	if id, err := c.TopicID(within(t), "topic"); err != nil || id != "" {
		t.Errorf("got %x, %v, want no ID", id, err)
	}
}

// FuzzTopicID verifies that decodeID returns an ID of 16 bytes, no ID, or an error, whatever a broker
// responds.
func FuzzTopicID(f *testing.F) {
	rack, name := "a", "topic"
	response := kmsg.NewPtrMetadataResponse()
	response.Version = idVersion
	broker, topic := kmsg.NewMetadataResponseBroker(), kmsg.NewMetadataResponseTopic()
	broker.Host, broker.Rack = "localhost", &rack
	topic.Topic, topic.TopicID = &name, [16]byte{1, 2}
	response.Brokers, response.Topics = append(response.Brokers, broker, broker), append(response.Topics, topic)
	encoded := response.AppendTo([]byte{0}) // without tagged fields in the header
	if res, err := decodeID(encoded); err != nil || res.err != nil || res.id != string(topic.TopicID[:]) {
		f.Fatalf("got %+v, %v", res, err)
	}
	for end := range len(encoded) + 1 {
		f.Add(encoded[:end])
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		res, err := decodeID(response)
		if err == nil && len(res.id) != 0 && len(res.id) != 16 {
			t.Errorf("got an ID of %d bytes", len(res.id))
		}
	})
}
