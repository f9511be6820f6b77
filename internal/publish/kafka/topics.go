package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// Placeholders in a topic template for the group and resource of an object. The core group
// is written as core.
const (
	groupPlace    = "{group}"
	resourcePlace = "{resource}"
)

// isTemplate reports whether each resource has its own topic.
func isTemplate(topic string) bool {
	return strings.Contains(topic, groupPlace) || strings.Contains(topic, resourcePlace)
}

// topicOf returns the topic of a key's events.
func (b *Bus) topicOf(k event.Key) string {
	if !b.opts.perResource {
		return b.opts.Topic
	}
	if k == (event.Key{}) { // the claim of a cluster name
		k = event.Key{Group: "kuberelay.io", Resource: "clusters"}
	}
	group := k.Group
	if group == "" {
		group = "core"
	}
	return strings.NewReplacer(groupPlace, group, resourcePlace, k.Resource).Replace(b.opts.Topic)
}

// pattern returns an expression that matches the topics of a template.
func pattern(template string) *regexp.Regexp {
	p := regexp.QuoteMeta(template)
	for _, place := range []string{groupPlace, resourcePlace} {
		p = strings.ReplaceAll(p, regexp.QuoteMeta(place), `[a-z0-9.-]+`)
	}
	return regexp.MustCompile("^" + p + "$")
}

// eventTopics returns the existing event topics. Without a template, it creates the topic if it does
// not exist. With a template, a matching topic is an event topic if the checkpoint topic names it or if
// it holds Kuberelay records. It ignores other topics.
//
// unseen has the topics that may be event topics but currently cannot be inspected. The value is
// true if the checkpoint topic names the topic.
func (b *Bus) eventTopics(ctx context.Context, recorded *takeover.Checkpoint) (topics []broker.Topic, unseen map[string]bool, err error) {
	if !b.opts.perResource {
		t, _, err := b.ensure(ctx, b.opts.Topic)
		return []broker.Topic{t}, nil, err
	}
	listed, err := b.client.Topics(ctx)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	template := pattern(b.opts.Topic)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(listed, recorded.Topics())))) {
		if name != b.opts.CheckpointTopic && template.MatchString(name) {
			names = append(names, name)
		}
	}
	var mu sync.Mutex
	unseen = map[string]bool{}
	err = each(ctx, len(names), func(ctx context.Context, i int) error {
		name := names[i]
		isRecorded := recorded.IsRecorded(name)
		sight, why := b.look(ctx, name, isRecorded)
		var t broker.Topic
		use := takeover.UseOf(isRecorded, sight)
		if use == takeover.Take {
			if t, _, why = b.ensure(ctx, name); why != nil {
				return why
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch use {
		case takeover.Take:
			topics = append(topics, t)
		case takeover.SetAside:
			b.log.Warn("topic is no longer visible; it will be read from the start when it is visible again", "topic", name, "err", why)
			unseen[name] = true
		case takeover.Recheck:
			b.log.Debug("cannot determine whether a topic is a Kuberelay topic, rechecking later", "topic", name, "err", why)
			unseen[name] = false
		case takeover.Fail:
			return why
		case takeover.Ignore:
		}
		return nil
	})
	return topics, unseen, err
}

// look determines whether a topic is visible, and whether it is an event topic. A topic that the
// checkpoint topic names only has to be visible. For any other topic, look decides by its first
// record. An empty topic is not an event topic yet, and is opened for its first event. look writes
// nothing.
func (b *Bus) look(ctx context.Context, name string, isRecorded bool) (takeover.Visibility, error) {
	var r broker.Record
	var found bool
	var err error
	if isRecorded {
		_, err = b.client.Topic(ctx, name)
	} else {
		ctx, cancel := context.WithTimeout(ctx, min(b.opts.AckTimeout, probeTimeout))
		defer cancel()
		r, found, err = b.firstRecord(ctx, name)
	}
	switch {
	case errors.Is(err, broker.ErrNoTopic), err != nil && failure.KindOf(err) == failure.Denied:
		return takeover.Hidden, err
	case err != nil:
		return takeover.Unknown, err
	case isRecorded, found && b.isKuberelays(name, r):
		return takeover.Ours, nil
	}
	return takeover.NotOurs, nil
}

// firstRecord returns the first record of any partition of a topic.
func (b *Bus) firstRecord(ctx context.Context, name string) (r broker.Record, found bool, err error) {
	offsets, err := b.client.Offsets(ctx, name)
	for p, end := range offsets.End {
		if offsets.Start[p] == end {
			continue
		}
		if r, found, err = b.client.ReadFirst(ctx, name, p, offsets.Start[p], end, b.refuse); found || err != nil {
			break
		}
	}
	return r, found, err
}

// typePrefix is the prefix of the CloudEvents types of Kuberelay.
const typePrefix = "io.kuberelay."

// isKuberelays reports whether a record looks like one that Kuberelay writes to the topic, for any
// cluster.
func (b *Bus) isKuberelays(topic string, r broker.Record) bool {
	if _, k, err := event.ParsePartitionKey(string(r.Key)); err == nil {
		if b.topicOf(k) != topic {
			return false
		}
	} else if _, _, err := event.ParseMarkerPartitionKey(string(r.Key)); err != nil {
		return false
	}
	if r.Value == nil {
		return true
	}
	attribute, err := attributesOf(r)
	return err == nil && strings.HasPrefix(attribute("type"), typePrefix)
}

// unknownEvery is the number of probes between two inspections of topics that are
// probably not Kuberelay's.
const unknownEvery = 60

// openUnseen opens the unseen topics that are now visible.
func (b *Bus) openUnseen(s *session, turn int) {
	unseen := s.unseenTopics()
	if len(unseen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, min(b.opts.AckTimeout, probeTimeout))
	defer cancel()
	listed, err := b.client.Topics(ctx) // usually cached
	if err != nil {
		return // watch reports the error
	}
	for _, name := range listed {
		known, is := unseen[name]
		if !is || !known && turn%unknownEvery != 0 {
			continue
		}
		sight, _ := b.look(ctx, name, known)
		switch takeover.UseOf(known, sight) {
		case takeover.Take:
			s.openTopic(name)
		case takeover.Ignore:
			s.mu.Lock()
			delete(s.unseen, name)
			s.mu.Unlock()
		case takeover.SetAside, takeover.Recheck, takeover.Fail:
		}
	}
}

// wanted returns the desired configuration of a topic.
func (b *Bus) wanted(name string) advice.TopicConfig {
	want := advice.TopicConfig{
		Name: name, Partitions: b.opts.Partitions, Replication: b.opts.Replication, CleanupPolicy: b.opts.CleanupPolicy,
	}
	if name == b.opts.CheckpointTopic {
		want.CleanupPolicy = "compact"
	}
	return want
}

// ensure creates a topic, or checks an existing one.
func (b *Bus) ensure(ctx context.Context, name string) (_ broker.Topic, created bool, err error) {
	want := b.wanted(name)
	t, created, err := b.client.Ensure(ctx, want)
	if created { // even if the topic is not available yet, because the next attempt finds it
		b.losses.Add(1)
		b.log.Info("topic created", "topic", name, "partitions", want.Partitions)
	}
	if err != nil {
		return broker.Topic{}, created, fmt.Errorf("topic %q: %w", name, err)
	}
	b.noteTopic(ctx, t)
	return t, created, nil
}

// writerOf returns the writer of a marker.
func writerOf(m *event.Message) string {
	var data struct{ Writer string }
	if err := json.Unmarshal(m.Data, &data); err != nil || data.Writer == "" {
		return "unknown"
	}
	return data.Writer
}

// topicLost is the reason to end a session whose topic no longer exists.
func topicLost(name string, err error) error {
	return fmt.Errorf("%w: topic %q: %w", sender.ErrDataLost, name, err)
}
