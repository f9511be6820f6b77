package kafkacluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Partition is the state of a partition according to a broker's metadata. Brokers are numbered as in
// Cluster.
type Partition struct {
	Topic    string
	Number   int
	Leader   int // negative if the partition has no leader
	Replicas []int
	InSync   []int
}

// Describe returns the partitions of the given topics, or of all topics, according to one of the
// brokers. An isolated broker knows an old state.
func (c *Cluster) Describe(ctx context.Context, topics ...string) (all []Partition, err error) {
	all, _, err = describe(ctx, c.admin, topics...)
	return all, err
}

// describe also returns the number of brokers in the cluster.
func describe(ctx context.Context, asked kmsg.Requestor, topics ...string) (all []Partition, brokers int, err error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, asked)
	if err != nil {
		return nil, 0, err
	}
	numbers := func(ids []int32) (all []int) {
		for _, id := range ids {
			all = append(all, int(id)-firstID)
		}
		return all
	}
	for _, t := range response.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, 0, fmt.Errorf("topic %s: %w", *t.Topic, err)
		}
		for _, p := range t.Partitions {
			leader := int(p.Leader) - firstID
			if p.Leader < 0 {
				leader = -1
			}
			all = append(all, Partition{*t.Topic, int(p.Partition), leader, numbers(p.Replicas), numbers(p.ISR)})
		}
	}
	return all, len(response.Brokers), nil
}

// Leader returns the broker that leads a partition, or 0 if no leader is known.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int) int {
	all, err := c.Describe(ctx, topic)
	if err != nil || partition >= len(all) {
		return 0
	}
	for _, p := range all {
		if p.Number == partition && p.Leader >= 0 {
			return p.Leader
		}
	}
	return 0
}

// AwaitInSync waits until every broker reports a healthy cluster: all brokers are in the cluster, and
// every partition has a leader and all its replicas in sync.
func (c *Cluster) AwaitInSync(ctx context.Context) error {
	return c.await(ctx, "all replicas are in sync", func(ctx context.Context) error {
		var failure error
		for n := range c.Brokers {
			all, brokers, err := describe(ctx, c.admin.Broker(firstID+n))
			if err == nil && brokers < len(c.Brokers) {
				err = fmt.Errorf("%d brokers are in the cluster", brokers)
			}
			for _, p := range all {
				if p.Leader < 0 || len(p.InSync) < len(p.Replicas) {
					err = errors.Join(err, fmt.Errorf("%+v", p))
				}
			}
			if err != nil {
				failure = errors.Join(failure, fmt.Errorf("broker %d: %w", n, err))
			}
		}
		return failure
	})
}

// healLimit bounds each wait for the cluster.
const healLimit = 90 * time.Second

func (c *Cluster) await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		asking, done := context.WithTimeout(ctx, requestTimeout)
		err := check(asking)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, ctx.Err(), err)
		}
	}
}

// CreateTopic creates a topic and waits until it is usable.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int, config map[string]string) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = int32(requestTimeout.Milliseconds())
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), -1
	for key, value := range config {
		entry := kmsg.NewCreateTopicsRequestTopicConfig()
		entry.Name, entry.Value = key, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, entry)
	}
	request.Topics = append(request.Topics, topic)
	err := c.await(ctx, "topic "+name+" is created", func(ctx context.Context) error {
		response, err := request.RequestWith(ctx, c.admin)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.await(ctx, "topic "+name+" is usable", func(ctx context.Context) error {
		all, err := c.Describe(ctx, name)
		for _, p := range all {
			if p.Leader < 0 {
				err = fmt.Errorf("%+v", p)
			}
		}
		return err
	})
}

// Configure sets a configuration of a topic, or restores its default if value is empty.
func (c *Cluster) Configure(ctx context.Context, topic, name, value string) error {
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	entry.Name, entry.Op, entry.Value = name, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(value)
	if value == "" {
		entry.Op, entry.Value = kmsg.IncrementalAlterConfigOpDelete, nil
	}
	resource.Configs = append(resource.Configs, entry)
	request.Resources = append(request.Resources, resource)
	return c.await(ctx, topic+" is configured", func(ctx context.Context) error {
		response, err := request.RequestWith(ctx, c.admin)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(response.Resources[0].ErrorCode)
	})
}

// Reassign assigns the given replicas to all partitions of a topic. The first replica is the preferred
// leader. New replicas first copy the partitions.
func (c *Cluster) Reassign(ctx context.Context, topic string, replicas ...int) error {
	all, err := c.Describe(ctx, topic)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	request.TimeoutMillis = int32(requestTimeout.Milliseconds())
	of := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	of.Topic = topic
	for _, p := range all {
		partition := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		partition.Partition = int32(p.Number)
		for _, n := range replicas {
			partition.Replicas = append(partition.Replicas, int32(firstID+n))
		}
		of.Partitions = append(of.Partitions, partition)
	}
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(ctx, c.admin)
	if err != nil {
		return err
	}
	err = kerr.ErrorForCode(response.ErrorCode)
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}

// ElectPreferred moves the leadership of each partition of a topic to the partition's first replica, if
// that replica is in sync.
func (c *Cluster) ElectPreferred(ctx context.Context, topic string) error {
	all, err := c.Describe(ctx, topic)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrElectLeadersRequest()
	request.TimeoutMillis = int32(requestTimeout.Milliseconds())
	of := kmsg.NewElectLeadersRequestTopic()
	of.Topic = topic
	for _, p := range all {
		of.Partitions = append(of.Partitions, int32(p.Number))
	}
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(ctx, c.admin)
	if err != nil {
		return err
	}
	err = kerr.ErrorForCode(response.ErrorCode)
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if of := kerr.ErrorForCode(p.ErrorCode); !errors.Is(of, kerr.ElectionNotNeeded) {
				err = errors.Join(err, of)
			}
		}
	}
	return err
}

// MetadataVersion returns the highest level of the feature metadata.version that a broker supports. The
// level depends on the broker's release.
func (c *Cluster) MetadataVersion(ctx context.Context, broker int) (int, error) {
	asked, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()[broker]), kgo.RequestTimeoutOverhead(requestTimeout), kgo.DialTimeout(requestTimeout))
	if err != nil {
		return 0, err
	}
	defer asked.Close()
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "test", "1"
	response, err := request.RequestWith(ctx, asked.SeedBrokers()[0])
	if err != nil {
		return 0, err
	}
	for _, f := range response.SupportedFeatures {
		if f.Name == "metadata.version" {
			return int(f.MaxVersion), nil
		}
	}
	return 0, fmt.Errorf("broker %d names no metadata.version", broker)
}
