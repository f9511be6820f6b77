package broker

import (
	"context"
	"strconv"

	"github.com/segmentio/kafka-go"
)

// planned returns a topic as the brokers would create it. What they do not tell is 0; to know it
// needs DescribeConfigs on the cluster.
func (c *Client) planned(ctx context.Context, want TopicConfig) Topic {
	t := Topic{Name: want.Name, Partitions: want.Partitions, Replication: want.Replication}
	is := c.brokerDefaults(ctx)
	if t.Replication < 1 {
		t.Replication = number(is["default.replication.factor"])
	}
	for name, value := range want.settings() {
		is[name] = value
	}
	return t.with(is)
}

// brokerDefaults returns what one broker has for the settings of a new topic that they share; nothing
// if it may not be read.
func (c *Client) brokerDefaults(ctx context.Context) map[string]string {
	is := map[string]string{}
	meta, err := c.kafka.Metadata(ctx, new(kafka.MetadataRequest))
	if err != nil || len(meta.Brokers) == 0 {
		return is
	}
	res, err := c.kafka.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeBroker, ResourceName: strconv.Itoa(meta.Brokers[0].ID),
			ConfigNames: []string{"default.replication.factor", "min.insync.replicas", uncleanElection},
		}},
	})
	if err != nil {
		return is
	}
	for _, r := range res.Resources {
		if r.Error != nil {
			continue
		}
		for _, entry := range r.ConfigEntries {
			is[entry.ConfigName] = entry.ConfigValue
		}
	}
	return is
}
