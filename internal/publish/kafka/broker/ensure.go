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

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// TopicConfig is the desired configuration of a topic.
type TopicConfig struct {
	Name string

	// Partitions is the number of partitions of a new topic. An existing topic may have
	// a different number.
	Partitions int
	// Replication is the minimum number of replicas per partition
	// (KUBERELAY_KAFKA_REPLICATION). If it is 0, the cluster's default applies.
	Replication int
	// CleanupPolicy is "delete", "compact" or "compact,delete".
	CleanupPolicy string
	// MayForget allows Kafka to delete records by age or size. If it is false, a topic whose
	// policy includes "delete" must set retention.ms and retention.bytes to -1.
	MayForget bool

	// Minimum values. If a field is 0, a new topic inherits the cluster's default, and an
	// existing topic may have any value.
	MinInsyncReplicas int // minimum
	MaxMessageBytes   int // minimum

	// Configs are additional settings of a new topic. They take precedence over the fields
	// above. Ensure does not check these settings on an existing topic.
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
		return failure.Misconfigured("a topic name is empty")
	case w.Partitions < 1:
		return failure.Misconfigured("topic %s is configured with %d partitions: use at least 1", w.Name, w.Partitions)
	case slices.ContainsFunc(policies, func(p string) bool { return p != "delete" && p != "compact" }):
		return failure.Misconfigured("topic %s is configured with the cleanup policy %q: use delete, compact, or compact,delete", w.Name, w.CleanupPolicy)
	case w.Replication > 0 && w.MinInsyncReplicas > w.Replication:
		return failure.Misconfigured("topic %s is configured with min.insync.replicas %d and %d replicas, which prevents all writes",
			w.Name, w.MinInsyncReplicas, w.Replication)
	}
	return nil
}

// Ensure checks that the topic exists with correct settings, and creates a missing topic. It
// returns a new topic when each of its partitions has a leader that serves the partition.
//
// If an existing topic has wrong settings, Ensure returns an error with [failure.ErrMisconfigured] in
// its chain. The error names each wrong setting and the commands that fix them. If the user
// lacks the permission to create the topic, the error is of the kind [failure.Denied]. If the user
// may not read the settings, Ensure logs that once and assumes that they are correct.
//
// The metadata of the returned topic is at most half a second old, unlike that of
// [Client.Topic]. Call Ensure if you must not miss a partition. Other clients may call Ensure
// concurrently. Ensure looks up the topic once and tries to create it once. It then waits
// for the new topic until ctx ends.
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

// create creates the topic. created is false if another client created the topic first.
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
	if !errors.Is(err, failure.ErrMisconfigured) {
		c.transport.note(started, err)
	}
	return false, err
}

// topic returns the topic in the form that kafka-go's CreateTopics takes.
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
	case failure.KindOf(err) == failure.Denied:
		err = c.denied(err, onTopic("Create", want.Name), permission{operation: "Create", resource: "cluster"})
		return fmt.Errorf("%w, or have an administrator create it: %s", err, c.createCommand(want))
	case errors.Is(err, kafka.InvalidReplicationFactor) && want.Replication > 0: // Kafka does not count starting and fenced brokers
		return fmt.Errorf("%w: fewer brokers are alive than KUBERELAY_KAFKA_REPLICATION, which is %d: start the missing brokers, or lower the setting", err, want.Replication)
	case errors.Is(err, kafka.InvalidReplicationFactor):
		return fmt.Errorf("%w: fewer brokers are alive than the cluster's default.replication.factor: start the missing brokers, or set KUBERELAY_KAFKA_REPLICATION", err)
	case failure.KindOf(err) == failure.Never:
		return failure.Misconfigured("%w", err) // for example, a policy of the cluster or an invalid value
	}
	return err
}

// await blocks until all partitions of a new topic are available. It sends requests to the
// leaders, because a broker can list a partition before the leader serves the partition.
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

// createCommand returns the command with which an administrator can create the topic.
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
