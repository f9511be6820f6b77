package broker

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
)

// permission is an operation on a resource, as Kafka's authorizer grants it.
type permission struct {
	operation string // as in kafka-acls.sh
	resource  string // topic, group, transactional-id or cluster
	name      string
}

func onTopic(operation, name string) permission { return permission{operation, "topic", name} }

func onGroup(operation, name string) permission { return permission{operation, "group", name} }

func onTransactionalID(id string) permission { return permission{"Write", "transactional-id", id} }

// iamActions maps a Kafka resource type and operation to the corresponding AWS IAM action.
var iamActions = map[string]string{
	"topic Create": "CreateTopic", "cluster Create": "CreateTopic", "topic Describe": "DescribeTopic", "topic DescribeConfigs": "DescribeTopicDynamicConfiguration",
	"topic Read": "ReadData", "topic Write": "WriteData", "group Read": "AlterGroup", "group Describe": "DescribeGroup",
	"transactional-id Write": "AlterTransactionalId", "cluster IdempotentWrite": "WriteDataIdempotently",
}

// idempotentWrite is required by brokers before 3.0 in addition to Write (KIP-679).
var idempotentWrite = permission{operation: "IdempotentWrite", resource: "cluster"}

// denied adds the missing ACL to an authorization error, because Kafka's error does not name
// it. needs lists the permissions that the request requires, at most one per resource type.
// denied returns other errors unchanged.
func (c *Client) denied(err error, needs ...permission) error {
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
			return failure.Misconfigured("%w: %s", err, c.addACL(p))
		}
	}
	return err
}

// addACL describes the ACL to add and the command that adds it.
func (c *Client) addACL(p permission) string {
	on, flag := p.resource+" "+p.name, " --"+p.resource+" "+quote(p.name)
	if p.resource == "cluster" {
		on, flag = "the cluster", " --cluster"
	}
	if c.opts.SASLMechanism == login.AWSIAM {
		return fmt.Sprintf("allow kafka-cluster:%s on %s in the IAM policy of the role", iamActions[p.resource+" "+p.operation], on)
	}
	return fmt.Sprintf("add the ACL: %s on %s (%s --add --allow-principal %s --operation %s%s)",
		p.operation, on, c.tool("kafka-acls.sh"), quote(c.principal()), p.operation, flag)
}

// principal returns the user that the brokers see, as far as the client can tell. Brokers can
// map the subject of a certificate to a shorter name (ssl.principal.mapping.rules).
func (c *Client) principal() string {
	if m, ok := c.transport.auth.(interface{ Subject() string }); ok {
		return "User:" + cmp.Or(m.Subject(), "PRINCIPAL")
	}
	switch {
	case c.opts.User != "":
		return "User:" + c.opts.User
	case c.opts.CertFile != "":
		if pair, err := tls.LoadX509KeyPair(c.opts.CertFile, c.opts.KeyFile); err == nil && pair.Leaf != nil {
			return "User:" + pair.Leaf.Subject.String()
		}
	}
	return "User:ANONYMOUS"
}

// tool returns the start of a command line for one of Kafka's tools. The command line contains
// no credentials, only the name of the administrator's properties file.
func (c *Client) tool(name string) string {
	command := name + " --bootstrap-server " + c.opts.brokers()
	if c.opts.TLS || c.opts.SASLMechanism != "" {
		command += " --command-config admin.properties"
	}
	return command
}

// quote quotes a word for the shell if necessary.
func quote(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool { return !isPlain(r) }) || word == "" {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

func isPlain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-/:=,@+", r)
}
