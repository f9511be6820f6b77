package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// ErrMisconfigured is wrapped by errors that a retry cannot fix.
var ErrMisconfigured = failure.ErrMisconfigured

var errTopicMissing = fmt.Errorf("the topic %w", publish.ErrMissing)

// Options configures a Bus.
type Options struct {
	Broker broker.Options
	// Topic is the event topic. If it contains {group} and {resource}, each resource has its own
	// topic.
	Topic string
	// CheckpointTopic is never read, even if its name matches a template in Topic.
	CheckpointTopic string
	Cluster         string // the cluster name; empty for all clusters

	// Reading counts the records of each read with a known end. It may be nil.
	Reading *longwork.Counter

	Logger *slog.Logger // nil for no logs
}

// Bus reads events from a Kafka cluster. It is safe for concurrent use.
type Bus struct {
	opts    Options
	client  *broker.Client
	prefix  []byte         // key prefix of the cluster
	pattern *regexp.Regexp // matches the topics of a template; nil if Topic is not a template
}

// Open returns a Bus without connecting. It returns an error only for invalid options. That error
// wraps [ErrMisconfigured].
func Open(o Options) (*Bus, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Broker.Logger = cmp.Or(o.Broker.Logger, o.Logger)
	if o.Topic == "" {
		return nil, fmt.Errorf("%w: no topic: set KUBERELAY_KAFKA_TOPIC", ErrMisconfigured)
	}
	client, err := broker.New(o.Broker)
	if err != nil {
		return nil, err
	}
	b := &Bus{opts: o, client: client}
	if o.Cluster != "" {
		b.prefix = event.ClusterPartitionKeys(o.Cluster)
	}
	if strings.Contains(o.Topic, resourcePlace) {
		p := regexp.QuoteMeta(o.Topic)
		for _, place := range []string{groupPlace, resourcePlace} {
			p = strings.ReplaceAll(p, regexp.QuoteMeta(place), `[a-z0-9.-]+`)
		}
		b.pattern = regexp.MustCompile("^" + p + "$")
	}
	return b, nil
}

// Close closes all connections. It is idempotent.
func (b *Bus) Close() error { return b.client.Close() }

// Placeholders in a topic template for the group and resource of an object. The core group
// is written as core.
const (
	groupPlace    = "{group}"
	resourcePlace = "{resource}"
)

// topicOf returns the topic of a key's events.
func (b *Bus) topicOf(k event.Key) string {
	if b.pattern == nil {
		return b.opts.Topic
	}
	return strings.NewReplacer(groupPlace, cmp.Or(k.Group, "core"), resourcePlace, k.Resource).Replace(b.opts.Topic)
}

// topics returns the existing event topics. If none exists, it returns an error that wraps
// [publish.ErrMissing].
func (b *Bus) topics(ctx context.Context) ([]broker.Topic, error) {
	names := []string{b.opts.Topic}
	if b.pattern != nil {
		all, err := b.client.Topics(ctx)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, name := range all {
			if b.pattern.MatchString(name) && name != b.opts.CheckpointTopic {
				names = append(names, name)
			}
		}
	}
	var topics []broker.Topic
	for _, name := range names {
		t, err := b.client.Topic(ctx, name)
		switch {
		case err == nil:
			topics = append(topics, t)
		case !errors.Is(err, broker.ErrNoTopic):
			return nil, err
		}
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("look up topic %s: %w", b.opts.Topic, errTopicMissing)
	}
	return topics, nil
}
