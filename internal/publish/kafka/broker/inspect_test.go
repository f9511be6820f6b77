package broker

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// TestInspectWhatCanBeLost verifies that Inspect reports the settings that can lose records, both before and
// after the creation of a topic.
func TestInspectWhatCanBeLost(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{Properties: map[string]string{uncleanElection: "true"}})
	c := newClient(t, b.Addr())
	want := advice.TopicConfig{Name: kafkabrokertest.TopicName("losing"), Partitions: 1, CleanupPolicy: "compact"}
	for _, missing := range []bool{true, false} {
		i, err := c.Inspect(within(t), want)
		if err != nil || i.Missing != missing {
			t.Fatalf("missing %v: %+v, %v", missing, i, err)
		}
		if is := i.Topic; is.Replication != 1 || is.MinInsyncReplicas != 1 || !is.UncleanElection {
			t.Errorf("missing %v: %+v", missing, is)
		}
		if _, _, err := c.Ensure(within(t), want); err != nil {
			t.Fatal(err)
		}
	}
}
