package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/segmentio/kafka-go"
)

// permission is what Kafka's authorizer grants: an operation on a resource.
type permission struct {
	operation string // as kafka-acls.sh has it
	resource  string // topic, transactional-id or cluster
	name      string
}

func onTopic(operation, name string) permission { return permission{operation, "topic", name} }

func onTransactionalID(id string) permission { return permission{"Write", "transactional-id", id} }

// idempotentWrite is what brokers before 3.0 ask for beside the right to write (KIP-679).
var idempotentWrite = permission{operation: "IdempotentWrite", resource: "cluster"}

// denied adds to a refusal the ACL that is missing, which Kafka does not name. The
// permissions are those that the request needs, at most one for each kind of
// resource. Other errors stay as they are.
func (c *Client) denied(err error, needs ...permission) error {
	var code kafka.Error
	if !errors.As(err, &code) || errors.Is(err, ErrMisconfigured) {
		return err
	}
	resource := ""
	switch code {
	case kafka.TopicAuthorizationFailed:
		resource = "topic"
	case kafka.TransactionalIDAuthorizationFailed:
		resource = "transactional-id"
	case kafka.ClusterAuthorizationFailed:
		resource = "cluster"
	}
	for _, p := range needs {
		if p.resource == resource {
			return misconfigured("%w: %s", err, c.addACL(p))
		}
	}
	return err
}

// addACL says which ACL to add, and the command for it.
func (c *Client) addACL(p permission) string {
	on, flag := p.resource+" "+p.name, " --"+p.resource+" "+quote(p.name)
	if p.resource == "cluster" {
		on, flag = "the cluster", " --cluster"
	}
	return fmt.Sprintf("add the ACL: %s on %s (%s --add --allow-principal %s --operation %s%s)",
		p.operation, on, c.tool("kafka-acls.sh"), quote(c.principal()), p.operation, flag)
}

// principal is whom the brokers take us for, as far as we can know: they may map the
// subject of a certificate to something shorter (ssl.principal.mapping.rules).
func (c *Client) principal() string {
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

// tool begins the command line of one of Kafka's own tools. What they need to log in is
// in a file that only an administrator has.
func (c *Client) tool(name string) string {
	command := name + " --bootstrap-server " + c.opts.brokers()
	if c.opts.TLS || c.opts.SASLMechanism != "" {
		command += " --command-config admin.properties"
	}
	return command
}

// quote quotes a word for the shell if need be.
func quote(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool { return !isPlain(r) }) || word == "" {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

func isPlain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-/:=,@+", r)
}
