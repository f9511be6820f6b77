package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// Ensure checks that the topic exists with correct settings, and creates a missing topic. For a new
// topic, it returns after every partition has a leader that serves the partition.
//
// If an existing topic has wrong settings, Ensure returns an error that wraps
// [failure.ErrMisconfigured]. The error names each wrong setting and the commands that fix them. If
// the user lacks the permission to create the topic, the error is of the kind [failure.Denied]. If
// the user may not read the settings, Ensure logs that once and assumes that they are correct.
//
// The metadata of the returned topic is at most half a second old, unlike that of
// [Client.Topic]. Call Ensure if you must not miss a partition. Other clients can call Ensure
// concurrently. Ensure looks up the topic once and tries to create it once. It then waits
// for the new topic until ctx ends.
func (c *Client) Ensure(ctx context.Context, want advice.TopicConfig) (t Topic, created bool, err error) {
	c.transport.renew(time.Now(), renewEvery)
	t, err = c.Topic(ctx, want.Name)
	switch {
	case errors.Is(err, ErrNoTopic):
		if created, err = c.create(ctx, want); err != nil {
			return Topic{}, false, fmt.Errorf("create topic %s: %w", want.Name, err)
		}
		if t, err = c.await(ctx, want.Name); err != nil {
			return Topic{}, created, fmt.Errorf("wait for the new topic %s: %w", want.Name, err)
		}
	case err != nil:
		return Topic{}, false, err
	}
	t, err = c.check(ctx, t, want)
	return t, created, err
}

// create creates the topic. created is false if another client created the topic first.
func (c *Client) create(ctx context.Context, want advice.TopicConfig) (created bool, err error) {
	started := time.Now()
	res, err := c.kafka.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{newTopic(want)}})
	if err == nil {
		err = res.Errors[want.Name]
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, kafka.TopicAlreadyExists):
		return false, nil
	}
	err = c.notCreated(want, err)
	if !errors.Is(err, failure.ErrMisconfigured) {
		c.transport.note(started, err)
	}
	return false, err
}

// newTopic returns the topic in the form that kafka-go's CreateTopics takes.
func newTopic(w advice.TopicConfig) kafka.TopicConfig {
	topic := kafka.TopicConfig{Topic: w.Name, NumPartitions: w.Partitions, ReplicationFactor: w.Replication}
	if w.Replication < 1 {
		topic.ReplicationFactor = -1
	}
	settings := w.Settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: settings[name]})
	}
	return topic
}

// notCreated explains why a topic was not created.
func (c *Client) notCreated(want advice.TopicConfig, err error) error {
	switch {
	case failure.KindOf(err) == failure.Denied:
		err = c.advisor.Denied(err, advice.OnTopic("Create", want.Name), advice.OnCluster("Create"))
		return fmt.Errorf("%w, or have an administrator create it: %s", err, c.advisor.CreateCommand(want))
	case errors.Is(err, kafka.InvalidReplicationFactor) && want.Replication > 0: // Kafka does not count starting and fenced brokers
		return fmt.Errorf("%w: fewer brokers are alive than KUBERELAY_KAFKA_REPLICATION, which is %d: start the missing brokers, or lower the setting", err, want.Replication)
	case errors.Is(err, kafka.InvalidReplicationFactor):
		return fmt.Errorf("%w: fewer brokers are alive than the cluster's default.replication.factor: start the missing brokers, or set KUBERELAY_KAFKA_REPLICATION", err)
	case failure.KindOf(err) == failure.Never:
		return failure.Misconfigured("%w", err) // for example, because of a policy of the cluster or an invalid value
	}
	return err
}

// await blocks until all partitions of a new topic are available. It sends requests to the
// leaders, because a broker can list a partition before the leader serves the partition.
func (c *Client) await(ctx context.Context, name string) (t Topic, err error) {
	err = c.persist(ctx, name, func() (err error) {
		t, _, err = c.allBounds(ctx, name)
		return err
	})
	return t, err
}

// checked lists the topic settings that check reads.
var checked = [...]string{"cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas", "max.message.bytes", uncleanElection}

// uncleanElection allows a replica that lacks acknowledged records to become the leader.
const uncleanElection = "unclean.leader.election.enable"

// check compares an existing topic with the desired configuration.
func (c *Client) check(ctx context.Context, t Topic, want advice.TopicConfig) (Topic, error) {
	var is map[string]string
	err := c.persist(ctx, want.Name, func() (err error) {
		is, err = c.settings(ctx, want.Name)
		return err
	})
	if errors.Is(err, kafka.TopicAuthorizationFailed) {
		if _, warned := c.warned.LoadOrStore(want.Name, true); !warned {
			c.log.Warn("cannot check the settings of the topic, assuming that they are correct", "topic", want.Name, "err", err)
		}
		is, err = nil, nil
	}
	if err != nil {
		return t, fmt.Errorf("read the settings of topic %s: %w", want.Name, err)
	}
	t = t.with(is)
	return t, c.advisor.CheckTopic(want, t.Replication, is)
}

// with returns a copy of the topic with the given settings.
func (t Topic) with(is map[string]string) Topic {
	t.CleanupPolicy = is["cleanup.policy"]
	t.MaxMessageBytes = advice.Number(is["max.message.bytes"])
	t.MinInsyncReplicas = advice.Number(is["min.insync.replicas"])
	t.UncleanElection = is[uncleanElection] == "true"
	return t
}

// settings reads the settings of a topic, including defaults.
func (c *Client) settings(ctx context.Context, topic string) (map[string]string, error) {
	is, err := c.configs(ctx, kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: checked[:]})
	return is, c.advisor.Denied(err, advice.OnTopic("DescribeConfigs", topic))
}

// configs reads settings of a topic or a broker.
func (c *Client) configs(ctx context.Context, of kafka.DescribeConfigRequestResource) (map[string]string, error) {
	res, err := c.kafka.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{of}})
	if err != nil {
		return nil, err
	}
	is := make(map[string]string)
	for _, r := range res.Resources {
		if r.Error != nil {
			return nil, r.Error
		}
		for _, entry := range r.ConfigEntries {
			is[entry.ConfigName] = entry.ConfigValue
		}
	}
	return is, nil
}
