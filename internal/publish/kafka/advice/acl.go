package advice

import (
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// Permission is an operation on a resource, as Kafka's authorizer grants it.
type Permission struct {
	operation string // as in kafka-acls.sh
	resource  string // topic, group, transactional-id, or cluster
	name      string
}

// OnTopic returns the permission for an operation on a topic.
func OnTopic(operation, name string) Permission { return Permission{operation, "topic", name} }

// OnGroup returns the permission for an operation on a consumer group.
func OnGroup(operation, name string) Permission { return Permission{operation, "group", name} }

// OnTransactionalID returns the permission to write with a transactional ID.
func OnTransactionalID(id string) Permission { return Permission{"Write", "transactional-id", id} }

// iamActions maps a Kafka resource type and operation to the corresponding AWS IAM action.
var iamActions = map[string]string{
	"topic Create": "CreateTopic", "cluster Create": "CreateTopic", "topic Describe": "DescribeTopic", "topic DescribeConfigs": "DescribeTopicDynamicConfiguration",
	"topic Read": "ReadData", "topic Write": "WriteData", "group Read": "AlterGroup", "group Describe": "DescribeGroup",
	"transactional-id Write": "AlterTransactionalId", "cluster IdempotentWrite": "WriteDataIdempotently",
}

// OnCluster returns the permission for an operation on the cluster. Brokers before 2.8 require
// IdempotentWrite on the cluster in addition to Write on a topic (KIP-679).
func OnCluster(operation string) Permission {
	return Permission{operation: operation, resource: "cluster"}
}

// Denied adds the missing ACL to an authorization error, because Kafka's error does not name
// it. needs lists the permissions that the request requires, at most one per resource type.
// Denied returns other errors unchanged.
func (a *Advisor) Denied(err error, needs ...Permission) error {
	var code kafka.Error
	if !errors.As(err, &code) || errors.Is(err, failure.ErrMisconfigured) {
		return err
	}
	resource := ""
	switch code {
	case kafka.TopicAuthorizationFailed:
		resource = "topic"
	case kafka.GroupAuthorizationFailed:
		resource = "group"
	case kafka.TransactionalIDAuthorizationFailed:
		resource = "transactional-id"
	case kafka.ClusterAuthorizationFailed:
		resource = "cluster"
	}
	for _, p := range needs {
		if p.resource == resource {
			return failure.Misconfigured("%w: %s", err, a.AddACL(p))
		}
	}
	return err
}

// AddACL describes the ACL to add and the command that adds it. If Advisor.IAM is set, it describes
// the action that the IAM policy must allow.
func (a *Advisor) AddACL(p Permission) string {
	on, flag := p.resource+" "+p.name, " --"+p.resource+" "+quote(p.name)
	if p.resource == "cluster" {
		on, flag = "the cluster", " --cluster"
	}
	if a.IAM {
		return fmt.Sprintf("allow kafka-cluster:%s on %s in the IAM policy of the role", iamActions[p.resource+" "+p.operation], on)
	}
	return fmt.Sprintf("add the ACL: %s on %s (%s --add --allow-principal %s --operation %s%s)",
		p.operation, on, a.tool("kafka-acls.sh"), quote(a.Principal()), p.operation, flag)
}
