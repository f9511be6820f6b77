package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// ErrNoTopic means that the topic does not exist. Its kind is [failure.Retry], like that of the
// broker's error that it wraps.
var ErrNoTopic = fmt.Errorf("no such topic: %w", kafka.UnknownTopicOrPartition)

// Topic is the state of a topic.
type Topic struct {
	Name        string
	Partitions  int
	Replication int // the lowest number of replicas of a partition

	// Settings of the topic. They are zero unless [Client.Ensure] or [Client.Inspect] could read them.
	CleanupPolicy     string // "delete", "compact", or "compact,delete"
	MaxMessageBytes   int    // of a batch, compressed
	MinInsyncReplicas int
	UncleanElection   bool // a replica that lacks acknowledged records can become the leader
}

// Topic looks up a topic in metadata that can be some seconds old. If the metadata lacks the
// topic, Topic asks a broker. It returns [ErrNoTopic] if the broker reports that the topic
// does not exist, and an error of the kind [failure.Denied] if the user may not describe it. Any other
// error means that the lookup failed. Topic makes one attempt.
func (c *Client) Topic(ctx context.Context, name string) (Topic, error) {
	t, known, err := c.lookUp(ctx, name)
	if err != nil || known {
		return t, wrapTopic(name, err)
	}
	// kafka-go's metadata might be older than the topic. It also lacks topics that this user
	// may not describe, because kafka-go always requests all topics. So ask a broker for
	// this topic.
	started := time.Now()
	if err := c.probe(ctx, name, "Describe"); err != nil {
		return Topic{}, wrapTopic(name, err)
	}
	c.transport.renew(started, 0)
	t, known, err = c.lookUp(ctx, name)
	if err == nil && !known {
		err = fmt.Errorf("the topic exists, but is not in the cluster's metadata yet: %w", kafka.LeaderNotAvailable)
	}
	return t, wrapTopic(name, err)
}

func wrapTopic(name string, err error) error {
	if err != nil {
		return fmt.Errorf("look up topic %s: %w", name, err)
	}
	return nil
}

// lookUp finds a topic in kafka-go's metadata.
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
		return Topic{}, false, c.advisor.Denied(found.Error, advice.OnTopic("Describe", name))
	}
	t = Topic{Name: name, Partitions: len(found.Partitions)}
	for i, p := range found.Partitions {
		if i == 0 || len(p.Replicas) < t.Replication {
			t.Replication = len(p.Replicas)
		}
	}
	return t, t.Partitions > 0, nil
}

// unrouted replaces the error of a request for a topic that is missing from kafka-go's metadata.
// The new error says that the topic does not exist, or that this user may not do the operation
// on it. unrouted returns other errors unchanged.
func (c *Client) unrouted(ctx context.Context, err error, topic, operation string) error {
	var route *protocol.TopicError
	if errors.As(err, &route) && errors.Is(err, protocol.ErrNoTopic) {
		if why := c.probe(ctx, topic, operation); why != nil {
			return why
		}
	}
	return err
}

// probe asks a broker whether a topic exists, and returns nil if it does. A user with permission
// for operation may ask, because Read and Write imply Describe. If the broker denies access, the
// error names the missing operation.
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
		case p.Error != nil && failure.KindOf(p.Error) != failure.Retry: // a leader with a temporary error proves that the topic exists
			return c.advisor.Denied(p.Error, advice.OnTopic(operation, name))
		case errors.Is(p.Error, kafka.Unknown):
			return p.Error
		}
	}
	return nil
}

// Topics returns the sorted names of all topics that this user may describe, without
// Kafka's internal topics. It makes one attempt, and uses metadata that can be some seconds
// old.
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

// TopicID returns the ID of a topic. A topic that was deleted and recreated has another ID (KIP-516).
// TopicID returns "" if the broker has no topic IDs, as before Kafka 2.8. It returns the same errors as
// [Client.Offsets].
func (c *Client) TopicID(ctx context.Context, name string) (id string, err error) {
	err = c.persist(ctx, name, func() error {
		asking, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
		defer cancel()
		started := time.Now()
		res, err := c.requests.RoundTrip(asking, c.kafka.Addr, &idRequest{c.opts.ClientID, name})
		if err == nil {
			id, err = res.(*idResponse).id, res.(*idResponse).err
		}
		if err == nil {
			return nil
		}
		c.transport.note(started, err)
		return c.advisor.Denied(c.unrouted(ctx, err, name, "Describe"), advice.OnTopic("Describe", name))
	})
	if err != nil {
		return "", fmt.Errorf("request the ID of topic %s: %w", name, err)
	}
	return id, nil
}
