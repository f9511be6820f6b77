package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
)

// checked are the settings that are looked at.
var checked = [...]string{"cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas", "max.message.bytes"}

// check compares an existing topic with what it should be.
func (c *Client) check(ctx context.Context, t Topic, want TopicConfig) (Topic, error) {
	var is map[string]string
	err := c.persist(ctx, want.Name, func() (err error) {
		is, err = c.settings(ctx, want.Name)
		return err
	})
	if errors.Is(err, kafka.TopicAuthorizationFailed) {
		if _, warned := c.warned.LoadOrStore(want.Name, true); !warned {
			c.log.Warn("cannot check the topic's settings, taking them to be right", "topic", want.Name, "err", err)
		}
		is, err = nil, nil
	}
	if err != nil {
		return t, fmt.Errorf("look at the settings of topic %s: %w", want.Name, err)
	}
	t.CleanupPolicy = is["cleanup.policy"]
	t.MaxMessageBytes = number(is["max.message.bytes"])
	t.MinInsyncReplicas = number(is["min.insync.replicas"])
	if wrong := compare(t, is, want); len(wrong) > 0 {
		return t, misconfigured("%s", c.describe(want, wrong))
	}
	return t, nil
}

// settings asks for the settings of a topic, defaults included.
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

// wrongSetting is one setting of a topic that would break a promise.
type wrongSetting struct {
	name, is, should string
	set              string // the value that kafka-configs.sh mends it with, "" if it cannot
}

// compare says what is wrong. A setting that is not known is taken to be right.
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
	// Without either policy nothing is ever deleted (Kafka 4.1 and later).
	if hasPolicy(policy, "delete") && !want.MayForget {
		for _, name := range []string{"retention.ms", "retention.bytes"} {
			if value, known := is[name]; known && !strings.HasPrefix(value, "-") {
				wrong = append(wrong, wrongSetting{name, value, "-1, as the topic would forget objects that do not change", "-1"})
			}
		}
	}
	wrong = append(wrong, atLeast("min.insync.replicas", is, want.MinInsyncReplicas)...)
	return append(wrong, atLeast("max.message.bytes", is, want.MaxMessageBytes)...)
}

// replicationFactor is no setting, and cannot be changed like one.
const replicationFactor = "replication factor"

func atLeast(name string, is map[string]string, least int) []wrongSetting {
	value, known := is[name]
	if !known || number(value) >= least {
		return nil
	}
	return []wrongSetting{{name, value, fmt.Sprintf("%d or more", least), strconv.Itoa(least)}}
}

// describe names what is wrong and the way to mend it.
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
	return fmt.Sprintf("topic %s has wrong settings: %s. To mend it: %s", want.Name, strings.Join(what, "; "), strings.Join(fixes, "; and "))
}

func hasPolicy(policies, one string) bool {
	return slices.Contains(strings.Split(strings.ReplaceAll(policies, " ", ""), ","), one)
}

// number is 0 for what is no number.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
