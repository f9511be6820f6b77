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

// TopicConfig is a topic as it should be.
type TopicConfig struct {
	Name string

	// Partitions is how many a new topic gets. An existing topic may have another number.
	Partitions int
	// Replication is how many replicas each partition has, at least
	// (KUBERELAY_KAFKA_REPLICATION). Of 0 the cluster decides.
	Replication int
	// CleanupPolicy is "delete", "compact" or "compact,delete".
	CleanupPolicy string
	// MayForget allows records to be deleted by age or size. Without it a topic whose
	// policy has "delete" must have retention.ms and retention.bytes of -1.
	MayForget bool

	// Of 0 the cluster decides, and an existing topic may have any.
	MinInsyncReplicas int // at least
	MaxMessageBytes   int // at least

	// Configs are further settings of a new topic; they win over those above. Those of
	// an existing one are not looked at.
	Configs map[string]string
}

// settings are the configuration of a topic that is created.
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
		return misconfigured("a topic has no name")
	case w.Partitions < 1:
		return misconfigured("topic %s should have %d partitions: at least one is needed", w.Name, w.Partitions)
	case slices.ContainsFunc(policies, func(p string) bool { return p != "delete" && p != "compact" }):
		return misconfigured("topic %s should have the cleanup policy %q: use delete, compact, or compact,delete", w.Name, w.CleanupPolicy)
	case w.Replication > 0 && w.MinInsyncReplicas > w.Replication:
		return misconfigured("topic %s should have min.insync.replicas %d of %d replicas: nothing could be written",
			w.Name, w.MinInsyncReplicas, w.Replication)
	}
	return nil
}

// Ensure creates the topic and returns when every partition of it has a leader that serves
// it, or checks the one there is. An existing topic with wrong settings is an error that
// names each and the command that mends it, in whose chain [ErrMisconfigured] is; so is
// a missing permission to create it, of the kind [Denied]. Where the settings may not be
// looked at, that is logged once, and they are taken to be right.
//
// What it gives is at most half a second old, unlike what [Client.Topic] does: ask it
// where no partition may be missed. Others may do the same at the same time. Whether
// there is a topic is asked once, and creating it tried once; for what that takes from
// then on it waits until ctx ends.
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

// create makes the topic; created is false if another was faster.
func (c *Client) create(ctx context.Context, want TopicConfig) (created bool, err error) {
	topic := kafka.TopicConfig{Topic: want.Name, NumPartitions: want.Partitions, ReplicationFactor: want.Replication}
	if want.Replication < 1 {
		topic.ReplicationFactor = -1
	}
	settings := want.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: settings[name]})
	}
	started := time.Now()
	res, err := c.kafka.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err == nil {
		err = res.Errors[want.Name]
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, kafka.TopicAlreadyExists):
		return false, nil
	case KindOf(err) == Denied:
		err = c.denied(err, onTopic("Create", want.Name), permission{operation: "Create", resource: "cluster"})
		return false, fmt.Errorf("%w, or have an administrator create it: %s", err, c.createCommand(want))
	case errors.Is(err, kafka.InvalidReplicationFactor):
		return false, misconfigured("%w: set KUBERELAY_KAFKA_REPLICATION, which is %d, to the number of brokers at most", err, want.Replication)
	case KindOf(err) == Never:
		return false, misconfigured("%w", err) // a policy of the cluster's, a setting's value
	}
	c.transport.note(started, err)
	return false, err
}

// await waits until all partitions of a topic that was just created can be used. A broker
// tells of a partition before it serves it, so it is the leaders that are asked.
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

// createCommand is what an administrator would type.
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
