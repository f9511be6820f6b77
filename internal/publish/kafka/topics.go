package kafka

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// The places of a topic's name that stand for an object's group and resource. The core
// group is written core.
const (
	groupPlace    = "{group}"
	resourcePlace = "{resource}"
)

// isTemplate tells whether each resource has a topic of its own.
func isTemplate(topic string) bool {
	return strings.Contains(topic, groupPlace) || strings.Contains(topic, resourcePlace)
}

// topicOf is the topic of a key's events.
func (b *Bus) topicOf(k event.Key) string {
	if !b.opts.perResource {
		return b.opts.Topic
	}
	if k == (event.Key{}) { // of a cluster's claim
		k = event.Key{Group: "kuberelay.io", Resource: "clusters"}
	}
	group := k.Group
	if group == "" {
		group = "core"
	}
	return strings.NewReplacer(groupPlace, group, resourcePlace, k.Resource).Replace(b.opts.Topic)
}

// pattern matches the topics of a template.
func pattern(template string) *regexp.Regexp {
	p := regexp.QuoteMeta(template)
	for _, place := range []string{groupPlace, resourcePlace} {
		p = strings.ReplaceAll(p, regexp.QuoteMeta(place), `[a-z0-9.-]+`)
	}
	return regexp.MustCompile("^" + p + "$")
}

// eventTopics gives the event topics that there are, and creates the one if there is
// to be only one.
func (b *Bus) eventTopics(ctx context.Context) ([]broker.Topic, error) {
	if !b.opts.perResource {
		t, _, err := b.ensure(ctx, b.opts.Topic)
		return []broker.Topic{t}, err
	}
	names, err := b.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	var topics []broker.Topic
	ours := pattern(b.opts.Topic)
	for _, name := range names {
		if name == b.opts.CheckpointTopic || !ours.MatchString(name) {
			continue
		}
		t, _, err := b.ensure(ctx, name)
		if err != nil {
			return nil, err
		}
		topics = append(topics, t)
	}
	return topics, nil
}

// ensure creates a topic or checks it.
func (b *Bus) ensure(ctx context.Context, name string) (_ broker.Topic, created bool, err error) {
	want := broker.TopicConfig{
		Name: name, Partitions: b.opts.Partitions, Replication: b.opts.Replication, CleanupPolicy: b.opts.CleanupPolicy,
	}
	if name == b.opts.CheckpointTopic {
		want.CleanupPolicy = "compact"
	}
	t, created, err := b.client.Ensure(ctx, want)
	if err != nil {
		return broker.Topic{}, created, fmt.Errorf("topic %q: %w", name, err)
	}
	if created {
		b.created.Add(1)
		b.log.Info("topic created", "topic", name, "partitions", t.Partitions)
	}
	return t, created, nil
}

// writerOf says who wrote a marker.
func writerOf(m *event.Message) string {
	var data struct{ Writer string }
	if err := json.Unmarshal(m.Data, &data); err != nil || data.Writer == "" {
		return "unknown"
	}
	return data.Writer
}

// topicLost is why a session ends whose topic is not there any more.
func topicLost(name string, err error) error {
	return fmt.Errorf("%w: topic %q: %w", errWentBack, name, err)
}
