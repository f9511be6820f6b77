package kafkabrokertest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

func TestSharedAndTopic(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	if kafkabrokertest.Shared(t) != b {
		t.Error("got two shared brokers, want one")
	}
	first := kafkabrokertest.Topic(t, b, "topic", 3, map[string]string{"cleanup.policy": "compact"})
	second := kafkabrokertest.Topic(t, b, "topic", 1, nil)
	if !strings.HasPrefix(first, "topic-") || first == second {
		t.Errorf("got topics %s and %s, want two names that begin with topic-", first, second)
	}
	transport := new(kafka.Transport)
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.Addr()), Transport: transport}
	metadata, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{first}})
	if err != nil {
		t.Fatal(err)
	}
	if len(metadata.Topics) != 1 || len(metadata.Topics[0].Partitions) != 3 {
		t.Errorf("got topics %+v, want one of 3 partitions", metadata.Topics)
	}
	configs, err := client.DescribeConfigs(t.Context(), &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: first, ConfigNames: []string{"cleanup.policy"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range configs.Resources[0].ConfigEntries {
		if entry.ConfigValue != "compact" {
			t.Errorf("got %s %q, want %q", entry.ConfigName, entry.ConfigValue, "compact")
		}
	}
}
