package broker

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// The following methods do what an administrator does.

func (c *Client) deleteTopic(t testing.TB, name string) {
	t.Helper()
	res, err := c.kafka.DeleteTopics(within(t), &kafka.DeleteTopicsRequest{Topics: []string{name}})
	if err = errors.Join(err, res.Errors[name]); err != nil {
		t.Fatal(err)
	}
	poll.Holds(t, "the topic is gone", func() bool { return errors.Is(c.probe(within(t), name, "Describe"), ErrNoTopic) })
}

// allow grants the user an operation on a topic, and waits until the broker reports the ACL.
func (c *Client) allow(t testing.TB, user, operation, topic string) {
	t.Helper()
	op := map[string]kafka.ACLOperationType{"Describe": kafka.ACLOperationTypeDescribe}[operation]
	res, err := c.kafka.CreateACLs(within(t), &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ResourcePatternType: kafka.PatternTypeLiteral,
		Principal: "User:" + user, Host: "*", Operation: op, PermissionType: kafka.ACLPermissionTypeAllow,
	}}})
	if err = errors.Join(append(res.Errors, err)...); err != nil {
		t.Fatal(err)
	}
	poll.Holds(t, "the ACL is known", func() bool {
		res, err := c.kafka.DescribeACLs(within(t), &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{
			ResourceTypeFilter: kafka.ResourceTypeTopic, ResourceNameFilter: topic, ResourcePatternTypeFilter: kafka.PatternTypeLiteral,
			Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny,
		}})
		return err == nil && res.Error == nil && len(res.Resources) == 1
	})
}

func (c *Client) kafkaSetting(t testing.TB, topic, name string) (string, error) {
	t.Helper()
	res, err := c.kafka.DescribeConfigs(within(t), &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name}},
	}})
	if err != nil {
		return "", err
	}
	if len(res.Resources) != 1 || len(res.Resources[0].ConfigEntries) != 1 {
		return "", fmt.Errorf("got %+v", res.Resources)
	}
	return res.Resources[0].ConfigEntries[0].ConfigValue, nil
}

func writeFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// saltedPassword computes Hi(password, salt, iterations) from RFC 5802.
func saltedPassword(t testing.TB, password string, salt []byte, iterations int) []byte {
	t.Helper()
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	return salted
}
