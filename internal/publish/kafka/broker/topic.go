package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// ErrNoTopic says that the cluster has no such topic. Of its kind it is [Retry], as the
// broker's answer is that it comes of.
var ErrNoTopic = fmt.Errorf("no such topic: %w", kafka.UnknownTopicOrPartition)

// Topic is a topic as it is.
type Topic struct {
	Name        string
	Partitions  int
	Replication int // of the partition that has the fewest replicas

	// Known only where [Client.Ensure] could look at the settings, else zero.
	CleanupPolicy     string // "delete", "compact" or "compact,delete"
	MaxMessageBytes   int    // of a batch, compressed
	MinInsyncReplicas int
}

// Topic looks a topic up, at most some seconds late. An error is [ErrNoTopic] where a
// broker, asked now, says that there is none; of the kind [Denied] if we may not know;
// else the cluster could not be asked. It makes one attempt.
func (c *Client) Topic(ctx context.Context, name string) (Topic, error) {
	t, known, err := c.lookUp(ctx, name)
	if err != nil || known {
		return t, wrapTopic(name, err)
	}
	// Kafka-go's metadata may be older than the topic. It also leaves out topics that
	// we may not describe, as it always asks for all; so a broker is asked for this one.
	started := time.Now()
	if err := c.probe(ctx, name, "Describe"); err != nil {
		return Topic{}, wrapTopic(name, err)
	}
	c.transport.renew(started, 0)
	t, known, err = c.lookUp(ctx, name)
	if err == nil && !known {
		err = fmt.Errorf("it exists, but is not in the cluster's metadata yet: %w", kafka.LeaderNotAvailable)
	}
	return t, wrapTopic(name, err)
}

func wrapTopic(name string, err error) error {
	if err != nil {
		return fmt.Errorf("look up topic %s: %w", name, err)
	}
	return nil
}

// lookUp finds a topic in the metadata that kafka-go has.
func (c *Client) lookUp(ctx context.Context, name string) (t Topic, known bool, err error) {
	res, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
	if err != nil {
		return Topic{}, false, err
	}
	found := res.Topics[0]
	switch {
	case errors.Is(found.Error, kafka.UnknownTopicOrPartition):
		return Topic{}, false, nil
	case found.Error != nil && len(found.Partitions) == 0:
		return Topic{}, false, c.denied(found.Error, onTopic("Describe", name))
	}
	t = Topic{Name: name, Partitions: len(found.Partitions)}
	for i, p := range found.Partitions {
		if i == 0 || len(p.Replicas) < t.Replication {
			t.Replication = len(p.Replicas)
		}
	}
	return t, t.Partitions > 0, nil
}

// unrouted says more of an error that kafka-go made as its metadata lack the topic: it is
// not there, or we may not know of it, for which operation would be enough.
func (c *Client) unrouted(ctx context.Context, err error, topic, operation string) error {
	var route *protocol.TopicError
	if errors.As(err, &route) && errors.Is(err, protocol.ErrNoTopic) {
		if why := c.probe(ctx, topic, operation); why != nil {
			return why
		}
	}
	return err
}

// probe asks a broker, any, whether there is a topic: nil if so. A user who may do the
// operation on it may know.
func (c *Client) probe(ctx context.Context, name, operation string) error {
	res, err := c.kafka.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{name: {kafka.LastOffsetOf(0)}},
	})
	if err != nil {
		return err
	}
	for _, p := range res.Topics[name] {
		switch {
		case errors.Is(p.Error, kafka.UnknownTopicOrPartition):
			return ErrNoTopic
		case p.Error != nil && KindOf(p.Error) != Retry: // any leader's trouble proves that it exists
			return c.denied(p.Error, onTopic(operation, name))
		case errors.Is(p.Error, kafka.Unknown):
			return p.Error
		}
	}
	return nil
}

// Topics gives the names of all topics that we may describe, in order, without Kafka's
// internal ones. It makes one attempt, and is at most some seconds late.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	res, err := c.kafka.Metadata(ctx, new(kafka.MetadataRequest))
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var names []string
	for _, t := range res.Topics {
		if !t.Internal {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
