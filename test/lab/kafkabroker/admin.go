package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	// createTimeout limits the creation of a topic. It allows for a machine that also compiles and runs
	// other tests.
	createTimeout = 2 * time.Minute
	// requestTimeout limits every other request.
	requestTimeout = 5 * time.Second
)

// ready returns nil when the broker is usable, as the package comment defines it.
func (b *Broker) ready(ctx context.Context) error {
	if !b.opts.ControllerOnly {
		if _, err := b.usable(ctx); err != nil {
			return err
		}
	}
	for _, l := range slices.Concat(b.opts.usual(), b.opts.Listeners) {
		if l == Controller && b.opts.Join != nil {
			continue
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.AddrOf(l))
		if err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}

// usable returns an error unless the broker serves every partition of the given topics, or of all
// topics. It returns the number of these partitions. A broker announces a new partition before it
// serves it, so its metadata isn't sufficient.
func (b *Broker) usable(ctx context.Context, topics ...string) (partitions int, err error) {
	known, err := b.partitions(ctx, topics...)
	if err != nil || len(known) == 0 {
		return 0, err
	}
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{}}
	for _, p := range known {
		request.Topics[p.Topic] = append(request.Topics[p.Topic], kafka.LastOffsetOf(p.ID))
	}
	client, done := b.client()
	defer done()
	response, err := client.ListOffsets(ctx, request)
	if err != nil {
		return 0, err
	}
	for topic, offsets := range response.Topics {
		for _, p := range offsets {
			if p.Error != nil {
				return 0, fmt.Errorf("partition %d of topic %s: %w", p.Partition, topic, p.Error)
			}
		}
	}
	return len(known), nil
}

// partitions returns the partitions of the given topics, or of all topics. It returns an error if a
// partition has no leader.
func (b *Broker) partitions(ctx context.Context, topics ...string) ([]kafka.Partition, error) {
	conn, err := kafka.DialContext(ctx, "tcp", b.Addr())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // only read from
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	brokers, err := conn.Brokers()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(brokers, func(known kafka.Broker) bool { return known.ID == b.opts.nodeID() }) {
		return nil, errors.New("the broker is not in the cluster yet")
	}
	if b.opts.Host != "" && len(topics) == 0 {
		return nil, nil // another broker may have to lead this broker's partitions: see Options.Host
	}
	known, err := conn.ReadPartitions(topics...)
	if err != nil {
		return nil, err
	}
	for _, p := range known {
		if p.Error != nil {
			return nil, fmt.Errorf("partition %d of topic %s: %w", p.ID, p.Topic, p.Error)
		}
	}
	return known, nil
}

// client returns a client without cached metadata. The caller must call done.
func (b *Broker) client() (client *kafka.Client, done func()) {
	transport := &kafka.Transport{DialTimeout: requestTimeout}
	return &kafka.Client{Addr: kafka.TCP(b.Addr()), Transport: transport, Timeout: requestTimeout}, transport.CloseIdleConnections
}

// CreateTopic creates a topic and waits until it is usable. config overrides the broker's defaults. The
// broker must be running.
func (b *Broker) CreateTopic(ctx context.Context, name string, partitions int, config map[string]string) error {
	return b.createTopic(ctx, kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}, partitions, config)
}

// CreateTopicOn is CreateTopic for a cluster. nodes contains the node id of one broker for each
// partition, which stores the partition's only replica.
func (b *Broker) CreateTopicOn(ctx context.Context, name string, nodes []int, config map[string]string) error {
	topic := kafka.TopicConfig{Topic: name, NumPartitions: -1, ReplicationFactor: -1} // the protocol requires -1 with assignments
	for p, node := range nodes {
		topic.ReplicaAssignments = append(topic.ReplicaAssignments, kafka.ReplicaAssignment{Partition: p, Replicas: []int{node}})
	}
	return b.createTopic(ctx, topic, len(nodes), config)
}

func (b *Broker) createTopic(ctx context.Context, topic kafka.TopicConfig, partitions int, config map[string]string) error {
	client, done := b.client()
	defer done()
	client.Timeout = createTimeout
	name := topic.Topic
	for _, key := range slices.Sorted(maps.Keys(config)) {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: config[key]})
	}
	var failure error
	err := b.process.Await(ctx, func(context.Context) error {
		response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err == nil {
			err = response.Errors[name]
		}
		if errors.Is(err, kafka.InvalidReplicationFactor) {
			return err // on a busy machine the broker's session can expire, and the broker registers again
		}
		failure = err
		return nil
	})
	err = errors.Join(failure, err)
	if err == nil {
		err = b.process.Await(ctx, func(ctx context.Context) error {
			got, err := b.usable(ctx, name)
			if err == nil && got != partitions {
				err = fmt.Errorf("has %d of %d partitions", got, partitions)
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}
