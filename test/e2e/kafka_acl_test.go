package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestKafkaPermissions_Slow verifies that the ACLs in docs/permissions.md suffice for the forwarder and for
// readers, and that readers can't write.
func TestKafkaPermissions_Slow(t *testing.T) {
	const name = "guarded"
	broker, as := guardedBroker(t, name)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	u.create(configMaps, namespace, configMap("a", "1"))
	f := newForwarder(t, cp.Kubeconfig(), "", as("forwarder", "w-password", namespace))
	f.start().idle()
	topic{t, broker.Addr(), name}.awaitKinds(map[string]string{key("configmaps", namespace, "a"): "snapshot"})
	newForwarder(t, cp.Kubeconfig(), "", as("reader", "r-password", namespace)).verified()
	f.stop()
	f.start().idle() // the topics now exist, and the forwarder checks their settings
	f.stop()

	mechanism, err := scram.Mechanism(scram.SHA512, "reader", "r-password")
	if err != nil {
		t.Fatal(err)
	}
	reader := kafkabrokertest.Client(t, broker.AddrOf(kafkabroker.SASLPlaintext))
	reader.Transport.(*kafkago.Transport).SASL = mechanism
	for topic, refused := range map[string]error{name: kafkago.TopicAuthorizationFailed, name + ".checkpoint": nil} { // the checkpoint topic is hidden from readers
		produced, err := reader.Produce(t.Context(), &kafkago.ProduceRequest{
			Topic: topic, RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(kafkago.Record{Value: kafkago.NewBytes([]byte("{}"))}),
		})
		if err == nil {
			err = produced.Error
		}
		if err == nil || refused != nil && !errors.Is(err, refused) {
			t.Errorf("the reader writes to %s: %v, want it refused", topic, err)
		}
	}
}

// guardedBroker starts a broker with the ACLs in docs/permissions.md for a topic. The function as
// returns the variables of a forwarder that logs in as one of the users and selects the ConfigMaps
// in a namespace.
func guardedBroker(t *testing.T, name string) (broker *kafkabrokertest.Broker, as func(user, password, namespace string) map[string]string) {
	t.Helper()
	broker = kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext}, Authorize: true,
		Users: map[string]string{"forwarder": "w-password", "reader": "r-password"},
	})
	commands := strings.NewReplacer("kuberelay.prod-eu1", name, "--topic kuberelay", "--topic "+name).Replace(documentedPermissions(t, "Kafka"))
	createACLs(t, kafkabrokertest.Client(t, broker.Addr()), parseACLs(t, commands))
	return broker, func(user, password, namespace string) map[string]string {
		return onKafka(topic{t, broker.AddrOf(kafkabroker.SASLPlaintext), name}, map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace,
			"KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "KAFKA_USER": user, "KAFKA_PASSWORD_FILE": written(t, password+"\n"),
		})
	}
}

// parseACLs parses the commands of kafka-acls.sh, one on each line.
func parseACLs(t *testing.T, commands string) (entries []kafkago.ACLEntry) {
	t.Helper()
	operations := map[string]kafkago.ACLOperationType{
		"Create": kafkago.ACLOperationTypeCreate, "Describe": kafkago.ACLOperationTypeDescribe, "Read": kafkago.ACLOperationTypeRead,
		"DescribeConfigs": kafkago.ACLOperationTypeDescribeConfigs, "Write": kafkago.ACLOperationTypeWrite,
	}
	for line := range strings.Lines(commands) {
		var do []kafkago.ACLOperationType
		e := kafkago.ACLEntry{Host: "*", PermissionType: kafkago.ACLPermissionTypeAllow, ResourcePatternType: kafkago.PatternTypeLiteral}
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "kafka-acls.sh" || words[1] != "--add" {
			t.Fatalf("unexpected command: %s", line)
		}
		for words = words[2:]; len(words) >= 2; words = words[2:] {
			switch flag, value := words[0], words[1]; flag {
			case "--allow-principal":
				e.Principal = value
			case "--operation":
				if operations[value] == 0 {
					t.Fatalf("unexpected operation: %s", line)
				}
				do = append(do, operations[value])
			case "--topic":
				e.ResourceType, e.ResourceName = kafkago.ResourceTypeTopic, value
			case "--transactional-id":
				e.ResourceType, e.ResourceName = kafkago.ResourceTypeTransactionalID, value
			default:
				t.Fatalf("unexpected flag: %s", line)
			}
		}
		for _, e.Operation = range do {
			entries = append(entries, e)
		}
	}
	return entries
}

// createACLs creates the ACLs and waits until the broker applies them. The controller responds
// before the broker receives the ACLs.
func createACLs(t *testing.T, client *kafkago.Client, entries []kafkago.ACLEntry) {
	t.Helper()
	response, err := client.CreateACLs(t.Context(), &kafkago.CreateACLsRequest{ACLs: entries})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range response.Errors {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entries {
		filter := kafkago.ACLFilter{
			ResourceTypeFilter: e.ResourceType, ResourceNameFilter: e.ResourceName, ResourcePatternTypeFilter: e.ResourcePatternType,
			PrincipalFilter: e.Principal, HostFilter: e.Host, Operation: e.Operation, PermissionType: e.PermissionType,
		}
		poll.Try(t, "the broker knows the ACL", func(ctx context.Context) error {
			found, err := client.DescribeACLs(ctx, &kafkago.DescribeACLsRequest{Filter: filter})
			if err == nil {
				err = found.Error
			}
			if err == nil && len(found.Resources) == 0 {
				err = fmt.Errorf("there is none of %+v", filter)
			}
			return err
		})
	}
}
