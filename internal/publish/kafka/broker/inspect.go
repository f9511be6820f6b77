package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
)

// Inspection is the state of a topic, as the brokers report it. [Client.Inspect] collects it and
// writes nothing.
type Inspection struct {
	// Topic describes the existing topic. If the topic is missing and the brokers would create it, Topic
	// describes the topic that they would create, as far as they report its settings.
	Topic   Topic
	Missing bool
	// Create is the reason why the brokers would not create the missing topic.
	Create error
	// Settings names the settings that would break a guarantee. Unreadable is set if the user may not read
	// the settings.
	Settings   error
	Unreadable bool
	// InSync is the lowest number of in-sync replicas of a partition.
	InSync int
	// Denied lists the operations that the forwarder needs and the user may not do. DeniedKnown is false if
	// the brokers do not report the permitted operations.
	Denied      []string
	DeniedKnown bool
}

// operations lists the operations that the forwarder needs on its topics, with their codes (AclOperation.java).
var operations = []struct {
	code int
	name string
}{{3, "Read"}, {4, "Write"}, {8, "Describe"}, {10, "DescribeConfigs"}}

// Inspect reads the state of a topic. It writes nothing. For a missing topic, it asks the brokers whether
// they would create the topic. If the user may not describe the topic, the brokers report that the topic is
// missing, or deny access. Inspect returns an error if a request fails.
func (c *Client) Inspect(ctx context.Context, want advice.TopicConfig) (i Inspection, err error) {
	i.Topic, err = c.Topic(ctx, want.Name)
	switch {
	case errors.Is(err, ErrNoTopic):
		i.Missing = true
		if i.Create = c.wouldCreate(ctx, want); i.Create == nil {
			i.Topic = c.planned(ctx, want)
		}
		return i, nil
	case err != nil:
		return i, err
	}
	is, err := c.settings(ctx, want.Name)
	switch {
	case errors.Is(err, kafka.TopicAuthorizationFailed):
		i.Unreadable = true
	case err != nil:
		return i, fmt.Errorf("read the settings of topic %s: %w", want.Name, err)
	}
	i.Topic = i.Topic.with(is)
	i.Settings = c.advisor.CheckTopic(want, i.Topic.Replication, is)
	err = c.inspectMetadata(ctx, want.Name, &i)
	return i, err
}

// Brokers returns the number of brokers. It makes one attempt.
func (c *Client) Brokers(ctx context.Context) (int, error) {
	res, err := c.kafka.Metadata(ctx, new(kafka.MetadataRequest))
	if err != nil {
		return 0, fmt.Errorf("list brokers: %w", err)
	}
	return len(res.Brokers), nil
}

// wouldCreate asks the brokers to validate the creation of a topic, and returns why they would reject it.
func (c *Client) wouldCreate(ctx context.Context, want advice.TopicConfig) error {
	topic := newTopic(want)
	request := createtopics.RequestTopic{
		Name: topic.Topic, NumPartitions: int32(topic.NumPartitions), ReplicationFactor: int16(topic.ReplicationFactor),
	}
	for _, e := range topic.ConfigEntries {
		request.Configs = append(request.Configs, createtopics.RequestConfig{Name: e.ConfigName, Value: e.ConfigValue})
	}
	res, err := c.exchange(ctx, &createtopics.Request{
		Topics: []createtopics.RequestTopic{request}, TimeoutMs: int32(c.opts.RequestTimeout.Milliseconds()), ValidateOnly: true,
	})
	if err != nil {
		return fmt.Errorf("validate the creation of topic %s: %w", want.Name, err)
	}
	for _, t := range res.(*createtopics.Response).Topics {
		if t.ErrorCode != 0 {
			err = fmt.Errorf("%w %s", kafka.Error(t.ErrorCode), t.ErrorMessage)
		}
	}
	if err == nil || errors.Is(err, kafka.TopicAlreadyExists) {
		return nil
	}
	return c.notCreated(want, err)
}

// inspectMetadata requests the topic's metadata from a broker, with the operations that the user may do.
// kafka-go's own metadata request does not ask for these operations.
func (c *Client) inspectMetadata(ctx context.Context, topic string, i *Inspection) error {
	res, err := c.exchange(ctx, &metadata.Request{TopicNames: []string{topic}, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return fmt.Errorf("request the permissions on topic %s: %w", topic, err)
	}
	for _, t := range res.(*metadata.Response).Topics {
		for n, p := range t.Partitions {
			if n == 0 || len(p.IsrNodes) < i.InSync {
				i.InSync = len(p.IsrNodes)
			}
		}
		if t.TopicAuthorizedOperations <= 0 { // Kafka before 2.3 does not support the field
			continue
		}
		i.DeniedKnown = true
		for _, o := range operations {
			if t.TopicAuthorizedOperations&(1<<o.code) == 0 {
				i.Denied = append(i.Denied, o.name)
			}
		}
	}
	return nil
}

// AddACL returns the command that grants an operation on a topic.
func (c *Client) AddACL(operation, topic string) string {
	return c.advisor.AddACL(advice.OnTopic(operation, topic))
}

// exchange sends a request to a broker without kafka-go's special handling. kafka-go answers metadata
// requests from a cache. After a CreateTopics request, kafka-go waits for the topics, even if the request
// only validates their creation.
func (c *Client) exchange(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	res, err := c.requests.RoundTrip(ctx, c.kafka.Addr, &rawRequest{Message: request, clientID: c.opts.ClientID})
	if err != nil {
		return nil, err
	}
	return res.(rawResponse).Message, nil
}

// rawRequest hides the type of a request from kafka-go. rawResponse does the same for a response.
type rawRequest struct {
	protocol.Message

	clientID string
	version  int16 // set by Required
}

type rawResponse struct{ protocol.Message }

var (
	_ protocol.BrokerMessage = (*rawRequest)(nil)
	_ protocol.RawExchanger  = (*rawRequest)(nil)
)

// Broker implements [protocol.BrokerMessage]. It selects the controller, because only the controller
// creates topics. Any broker can serve metadata.
func (*rawRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	return cluster.Brokers[cluster.Controller], nil
}

// Required implements [protocol.RawExchanger].
func (r *rawRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[r.ApiKey()]
	return true
}

// RawExchange implements [protocol.RawExchanger].
func (r *rawRequest) RawExchange(connection io.ReadWriter) (protocol.Message, error) {
	if err := protocol.WriteRequest(connection, r.version, correlationID, r.clientID, r.Message); err != nil {
		return nil, err
	}
	_, response, err := protocol.ReadResponse(connection, r.ApiKey(), r.version)
	return rawResponse{response}, err
}

// planned returns the topic that the brokers would create. If the brokers do not report a default, the field
// has its zero value. They report defaults only to a user with DescribeConfigs on the cluster.
func (c *Client) planned(ctx context.Context, want advice.TopicConfig) Topic {
	t := Topic{Name: want.Name, Partitions: want.Partitions, Replication: want.Replication}
	is := c.brokerDefaults(ctx)
	if t.Replication < 1 {
		t.Replication = advice.Number(is["default.replication.factor"])
	}
	maps.Copy(is, want.Settings())
	return t.with(is)
}

// brokerDefaults returns the defaults of one broker that new topics inherit. The map is empty if the user may
// not read them or if the request fails.
func (c *Client) brokerDefaults(ctx context.Context) map[string]string {
	if meta, err := c.kafka.Metadata(ctx, new(kafka.MetadataRequest)); err == nil && len(meta.Brokers) > 0 {
		is, err := c.configs(ctx, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeBroker, ResourceName: strconv.Itoa(meta.Brokers[0].ID),
			ConfigNames: []string{"default.replication.factor", "min.insync.replicas", uncleanElection},
		})
		if err == nil {
			return is
		}
	}
	return map[string]string{}
}
