package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/stored"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// Config specifies the names and the settings of the topics.
type Config struct {
	Template   Template
	Checkpoint string // name of the checkpoint topic

	// Settings of new topics. For the checks of existing topics, see [broker.Client.Ensure].
	Partitions    int
	Replication   int
	CleanupPolicy string // of the event topics

	LookTimeout time.Duration // bounds the inspection of a topic that the checkpoint topic does not name
	Created     func()        // called when a topic was created
	Logger      *slog.Logger
}

// Topics holds the event topics and the checkpoint topic of a forwarder. It is safe for concurrent
// use.
type Topics struct {
	Config

	client *broker.Client
	stored *stored.Reader

	mu      sync.Mutex
	seen    map[string]broker.Topic // by name, with the settings when they were opened; for [Topics.Risks]
	brokers int                     // number of brokers when the last topic was opened
}

// New returns the topics of a forwarder. It sends no request.
func New(client *broker.Client, read *stored.Reader, c Config) *Topics {
	return &Topics{Config: c, client: client, stored: read, seen: map[string]broker.Topic{}}
}

// Discover returns the existing event topics. If all resources share one topic, Discover creates
// this topic if it does not exist. If each resource has its own topic, a topic that matches the
// template is an event topic if the checkpoint topic names it, or if its first record is a Kuberelay
// event.
//
// unseen contains the topics that might be event topics but currently cannot be inspected. The value
// is true if the checkpoint topic names the topic.
func (t *Topics) Discover(ctx context.Context, recorded *takeover.Checkpoint) (topics []broker.Topic, unseen map[string]bool, err error) {
	if !t.Template.isPerResource() {
		one, _, err := t.Ensure(ctx, string(t.Template))
		return []broker.Topic{one}, nil, err
	}
	listed, err := t.client.Topics(ctx)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	template := t.Template.pattern()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(listed, recorded.Topics())))) {
		if name != t.Checkpoint && template.MatchString(name) {
			names = append(names, name)
		}
	}
	var mu sync.Mutex
	unseen = map[string]bool{}
	err = broker.Each(ctx, len(names), func(ctx context.Context, i int) error {
		name := names[i]
		isRecorded := recorded.IsRecorded(name)
		sight, why := t.look(ctx, name, isRecorded)
		var found broker.Topic
		use := takeover.UseOf(isRecorded, sight)
		if use == takeover.Take {
			if found, _, why = t.Ensure(ctx, name); why != nil {
				return why
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch use {
		case takeover.Take:
			topics = append(topics, found)
		case takeover.SetAside:
			t.Logger.Warn("topic is no longer visible; it will be read from the start when it is visible again", "topic", name, "err", why)
			unseen[name] = true
		case takeover.Recheck:
			t.Logger.Debug("cannot determine whether a topic is a Kuberelay topic, rechecking later", "topic", name, "err", why)
			unseen[name] = false
		case takeover.Fail:
			return why
		case takeover.Ignore:
		}
		return nil
	})
	return topics, unseen, err
}

// Recheck looks again at topics that Discover could not inspect. If all is false, it looks only at
// those that the checkpoint topic names. It returns the event topics that are visible now, and the
// topics of other users.
func (t *Topics) Recheck(ctx context.Context, unseen map[string]bool, all bool) (visible, others []string, err error) {
	listed, err := t.client.Topics(ctx) // usually cached
	for _, name := range listed {
		isRecorded, is := unseen[name]
		if !is || !isRecorded && !all {
			continue
		}
		sight, _ := t.look(ctx, name, isRecorded)
		switch takeover.UseOf(isRecorded, sight) {
		case takeover.Take:
			visible = append(visible, name)
		case takeover.Ignore:
			others = append(others, name)
		case takeover.SetAside, takeover.Recheck, takeover.Fail:
		}
	}
	return visible, others, err
}

// look determines whether a topic is visible, and whether it is an event topic. A topic that the
// checkpoint topic names is an event topic. For any other topic, look decides by the topic's first
// record. An empty topic is not an event topic yet, and is opened for its first event. look writes
// nothing.
func (t *Topics) look(ctx context.Context, name string, isRecorded bool) (takeover.Visibility, error) {
	var r broker.Record
	var found bool
	var err error
	if isRecorded {
		_, err = t.client.Topic(ctx, name)
	} else {
		ctx, cancel := context.WithTimeout(ctx, t.LookTimeout)
		defer cancel()
		r, found, err = t.firstRecord(ctx, name)
	}
	switch {
	case errors.Is(err, broker.ErrNoTopic), err != nil && failure.KindOf(err) == failure.Denied:
		return takeover.Hidden, err
	case err != nil:
		return takeover.Unknown, err
	case isRecorded, found && t.isKuberelays(name, r):
		return takeover.Ours, nil
	}
	return takeover.NotOurs, nil
}

// firstRecord returns the first record of any partition of a topic.
func (t *Topics) firstRecord(ctx context.Context, name string) (r broker.Record, found bool, err error) {
	offsets, err := t.client.Offsets(ctx, name)
	for p, end := range offsets.End {
		if offsets.Start[p] == end {
			continue
		}
		if r, found, err = t.stored.ReadFirst(ctx, name, p, offsets.Start[p], end); found || err != nil {
			break
		}
	}
	return r, found, err
}

// isKuberelays reports whether a record looks like one that Kuberelay writes to the topic, for any
// cluster.
func (t *Topics) isKuberelays(topic string, r broker.Record) bool {
	if _, k, err := event.ParsePartitionKey(string(r.Key)); err == nil {
		if t.Template.Of(k) != topic {
			return false
		}
	} else if _, _, err := event.ParseMarkerPartitionKey(string(r.Key)); err != nil {
		return false
	}
	if r.Value == nil {
		return true
	}
	attribute, _, err := binding.Attributes(r.Headers, r.Value)
	return err == nil && strings.HasPrefix(attribute("type"), event.TypePrefix)
}

// wanted returns the desired configuration of a topic.
func (t *Topics) wanted(name string) advice.TopicConfig {
	want := advice.TopicConfig{
		Name: name, Partitions: t.Partitions, Replication: t.Replication, CleanupPolicy: t.CleanupPolicy,
	}
	if name == t.Checkpoint {
		want.CleanupPolicy = "compact"
	}
	return want
}

// Ensure creates a topic, or checks an existing one.
func (t *Topics) Ensure(ctx context.Context, name string) (_ broker.Topic, created bool, err error) {
	want := t.wanted(name)
	is, created, err := t.client.Ensure(ctx, want)
	if created { // also if Ensure failed after the creation, because the next attempt reports created as false
		t.Created()
		t.Logger.Info("topic created", "topic", name, "partitions", want.Partitions)
	}
	if err != nil {
		return broker.Topic{}, created, fmt.Errorf("topic %q: %w", name, err)
	}
	t.note(ctx, is)
	return is, created, nil
}
