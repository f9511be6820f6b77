package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// checked lists the topic settings that check reads.
var checked = [...]string{"cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas", "max.message.bytes", uncleanElection}

// uncleanElection allows a replica that lacks acknowledged records to lead.
const uncleanElection = "unclean.leader.election.enable"

// check compares an existing topic with the desired configuration.
func (c *Client) check(ctx context.Context, t Topic, want TopicConfig) (Topic, error) {
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
	if wrong := compare(t, is, want); len(wrong) > 0 {
		return t, failure.Misconfigured("%s", c.describe(want, wrong))
	}
	return t, nil
}

// with returns a copy of the topic with the given settings.
func (t Topic) with(is map[string]string) Topic {
	t.CleanupPolicy = is["cleanup.policy"]
	t.MaxMessageBytes = number(is["max.message.bytes"])
	t.MinInsyncReplicas = number(is["min.insync.replicas"])
	t.UncleanElection = is[uncleanElection] == "true"
	return t
}

// settings reads the settings of a topic, including defaults.
func (c *Client) settings(ctx context.Context, topic string) (map[string]string, error) {
	res, err := c.kafka.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: checked[:]},
		},
	})
	if err != nil {
		return nil, err
	}
	is := make(map[string]string)
	for _, r := range res.Resources {
		if r.Error != nil {
			return nil, c.denied(r.Error, onTopic("DescribeConfigs", topic))
		}
		for _, entry := range r.ConfigEntries {
			is[entry.ConfigName] = entry.ConfigValue
		}
	}
	return is, nil
}

// wrongSetting is a topic setting that would break a guarantee.
type wrongSetting struct {
	name, is, should string
	set              string // the value to set with kafka-configs.sh, "" if that cannot fix it
}

// compare returns the wrong settings. It assumes that an unknown setting is correct.
func compare(t Topic, is map[string]string, want TopicConfig) []wrongSetting {
	var wrong []wrongSetting
	if t.Replication < want.Replication {
		wrong = append(wrong, wrongSetting{name: replicationFactor, is: strconv.Itoa(t.Replication), should: fmt.Sprintf("%d or more", want.Replication)})
	}
	if len(is) == 0 {
		return wrong
	}
	policy := is["cleanup.policy"]
	if _, known := is["cleanup.policy"]; known && hasPolicy(policy, "compact") != hasPolicy(want.CleanupPolicy, "compact") {
		wrong = append(wrong, wrongSetting{"cleanup.policy", policy, want.CleanupPolicy, want.CleanupPolicy})
		policy = want.CleanupPolicy
	}
	// If the policy is empty (Kafka 4.1 and later), the brokers ignore the retention and delete nothing.
	if hasPolicy(policy, "delete") && !want.MayForget {
		for _, name := range []string{"retention.ms", "retention.bytes"} {
			if value, known := is[name]; known && !strings.HasPrefix(value, "-") {
				wrong = append(wrong, wrongSetting{name, value, "-1, because the topic would lose objects that do not change", "-1"})
			}
		}
	}
	wrong = append(wrong, atLeast("min.insync.replicas", is, want.MinInsyncReplicas)...)
	return append(wrong, atLeast("max.message.bytes", is, want.MaxMessageBytes)...)
}

// replicationFactor is not a topic setting, so kafka-configs.sh cannot change it.
const replicationFactor = "replication factor"

func atLeast(name string, is map[string]string, least int) []wrongSetting {
	value, known := is[name]
	if !known || number(value) >= least {
		return nil
	}
	return []wrongSetting{{name, value, fmt.Sprintf("%d or more", least), strconv.Itoa(least)}}
}

// describe names the wrong settings and the commands that fix them.
func (c *Client) describe(want TopicConfig, wrong []wrongSetting) string {
	var what, set, fixes []string
	for _, w := range wrong {
		what = append(what, fmt.Sprintf("%s is %q, should be %s", w.name, w.is, w.should))
		switch {
		case w.name == replicationFactor:
			fixes = append(fixes, fmt.Sprintf("%s --execute --reassignment-json-file FILE, where FILE names %d brokers for each partition, "+
				"or set KUBERELAY_KAFKA_REPLICATION=%s", c.tool("kafka-reassign-partitions.sh"), want.Replication, w.is))
		case strings.Contains(w.set, ","):
			set = append(set, w.name+"=["+w.set+"]")
		default:
			set = append(set, w.name+"="+w.set)
		}
	}
	if len(set) > 0 {
		configs := fmt.Sprintf("%s --alter --entity-type topics --entity-name %s --add-config %s",
			c.tool("kafka-configs.sh"), quote(want.Name), quote(strings.Join(set, ",")))
		fixes = slices.Insert(fixes, 0, configs)
	}
	return fmt.Sprintf("topic %s has wrong settings: %s. To fix it: %s", want.Name, strings.Join(what, "; "), strings.Join(fixes, "; and "))
}

func hasPolicy(policies, one string) bool {
	return slices.Contains(strings.Split(strings.ReplaceAll(policies, " ", ""), ","), one)
}

// number returns 0 for text that is not a number.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
