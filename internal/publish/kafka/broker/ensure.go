package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

// TopicConfig is the desired configuration of a topic.
type TopicConfig struct {
	Name string

	// Partitions is the number of partitions of a new topic. An existing topic may have
	// another number.
	Partitions int
	// Replication is the minimum number of replicas per partition
	// (KUBERELAY_KAFKA_REPLICATION). With 0, the cluster decides.
	Replication int
	// CleanupPolicy is "delete", "compact" or "compact,delete".
	CleanupPolicy string
	// MayForget allows records to be deleted by age or size. Without it a topic whose
	// policy has "delete" must have retention.ms and retention.bytes of -1.
	MayForget bool

	// With 0, the cluster decides, and an existing topic may have any value.
	MinInsyncReplicas int // minimum
	MaxMessageBytes   int // minimum

	// Configs are additional settings of a new topic. They take precedence over the fields
	// above. Those of an existing topic are not checked.
	Configs map[string]string
}

// settings returns the configuration of a new topic.
func (w TopicConfig) settings() map[string]string {
	s := map[string]string{"cleanup.policy": w.CleanupPolicy}
	if hasPolicy(w.CleanupPolicy, "delete") && !w.MayForget {
		s["retention.ms"], s["retention.bytes"] = "-1", "-1"
	}
	if w.MinInsyncReplicas > 0 {
		s["min.insync.replicas"] = strconv.Itoa(w.MinInsyncReplicas)
	}
	if w.MaxMessageBytes > 0 {
		s["max.message.bytes"] = strconv.Itoa(w.MaxMessageBytes)
	}
	maps.Copy(s, w.Configs)
	return s
}

func (w TopicConfig) validate() error {
	policies := strings.Split(w.CleanupPolicy, ",")
	switch {
	case w.Name == "":
		return misconfigured("a topic name is empty")
	case w.Partitions < 1:
		return misconfigured("topic %s is configured with %d partitions: use at least 1", w.Name, w.Partitions)
	case slices.ContainsFunc(policies, func(p string) bool { return p != "delete" && p != "compact" }):
		return misconfigured("topic %s is configured with the cleanup policy %q: use delete, compact, or compact,delete", w.Name, w.CleanupPolicy)
	case w.Replication > 0 && w.MinInsyncReplicas > w.Replication:
		return misconfigured("topic %s is configured with min.insync.replicas %d and %d replicas, which prevents all writes",
			w.Name, w.MinInsyncReplicas, w.Replication)
	}
	return nil
}

// Ensure creates the topic and returns when each of its partitions has a leader that serves
// it, or checks the existing topic. Wrong settings of an existing topic are an error that
// names each of them and the command that fixes it, with [ErrMisconfigured] in its chain. A
// missing permission to create the topic is an error of the kind [Denied]. If the settings
// may not be read, Ensure logs that once and assumes that they are correct.
//
// The returned topic is at most half a second old, unlike that of [Client.Topic]: call
// Ensure where no partition may be missed. Others may call it concurrently. It checks for
// the topic once and tries to create it once, and then waits for it until ctx ends.
func (c *Client) Ensure(ctx context.Context, want TopicConfig) (t Topic, created bool, err error) {
	if err := want.validate(); err != nil {
		return Topic{}, false, err
	}
	c.transport.renew(time.Now(), renewEvery)
	t, err = c.Topic(ctx, want.Name)
	switch {
	case isNoTopic(err):
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

// create creates the topic. created is false if another client was faster.
func (c *Client) create(ctx context.Context, want TopicConfig) (created bool, err error) {
	started := time.Now()
	res, err := c.kafka.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{want.topic()}})
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
	if !errors.Is(err, ErrMisconfigured) {
		c.transport.note(started, err)
	}
	return false, err
}

// topic returns the topic to create.
func (w TopicConfig) topic() kafka.TopicConfig {
	topic := kafka.TopicConfig{Topic: w.Name, NumPartitions: w.Partitions, ReplicationFactor: w.Replication}
	if w.Replication < 1 {
		topic.ReplicationFactor = -1
	}
	settings := w.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: settings[name]})
	}
	return topic
}

// notCreated explains why a topic was not created.
func (c *Client) notCreated(want TopicConfig, err error) error {
	switch {
	case KindOf(err) == Denied:
		err = c.denied(err, onTopic("Create", want.Name), permission{operation: "Create", resource: "cluster"})
		return fmt.Errorf("%w, or have an administrator create it: %s", err, c.createCommand(want))
	case errors.Is(err, kafka.InvalidReplicationFactor) && want.Replication > 0: // starting and fenced brokers do not count
		return fmt.Errorf("%w: fewer brokers are alive than KUBERELAY_KAFKA_REPLICATION, which is %d: start the missing brokers, or lower the setting", err, want.Replication)
	case errors.Is(err, kafka.InvalidReplicationFactor):
		return fmt.Errorf("%w: fewer brokers are alive than the cluster's default.replication.factor: start the missing brokers, or set KUBERELAY_KAFKA_REPLICATION", err)
	case KindOf(err) == Never:
		return misconfigured("%w", err) // for example a policy of the cluster, or a value
	}
	return err
}

// await blocks until all partitions of a new topic are available. It asks the leaders,
// because a broker reports a partition before its leader serves it.
func (c *Client) await(ctx context.Context, name string) (Topic, error) {
	var t Topic
	err := c.persist(ctx, name, func() error {
		var err error
		if t, err = c.Topic(ctx, name); err != nil {
			return err
		}
		partitions := make([]int, t.Partitions)
		for p := range partitions {
			partitions[p] = p
		}
		_, err = c.bounds(ctx, name, partitions...)
		return err
	})
	return t, err
}

// createCommand returns the command for an administrator.
func (c *Client) createCommand(want TopicConfig) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s --create --topic %s --partitions %d", c.tool("kafka-topics.sh"), quote(want.Name), want.Partitions)
	if want.Replication > 0 {
		fmt.Fprintf(&b, " --replication-factor %d", want.Replication)
	}
	settings := want.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, " --config %s", quote(name+"="+settings[name]))
	}
	return b.String()
}
