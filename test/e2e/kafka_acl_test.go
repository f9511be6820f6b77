package e2e

import (
	"os"
	"path/filepath"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/kafkabroker"
	"github.com/kuberelay/kuberelay/internal/kafkabroker/kafkabrokertest"
)

// The permissions that the README names are enough, for the forwarder and for whoever
// reads.
func TestKafkaPermissions(t *testing.T) {
	broker := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext}, Authorize: true,
		Users: map[string]string{"writer": "w-password", "reader": "r-password"},
	})
	const name = "guarded"
	allow(t, broker.Addr(), "writer", kafkago.ResourceTypeTopic, []string{name, name + ".checkpoint"},
		kafkago.ACLOperationTypeCreate, kafkago.ACLOperationTypeDescribe, kafkago.ACLOperationTypeDescribeConfigs, kafkago.ACLOperationTypeRead, kafkago.ACLOperationTypeWrite)
	allow(t, broker.Addr(), "writer", kafkago.ResourceTypeTransactionalID, []string{name}, kafkago.ACLOperationTypeDescribe, kafkago.ACLOperationTypeWrite)
	allow(t, broker.Addr(), "reader", kafkago.ResourceTypeTopic, []string{name}, kafkago.ACLOperationTypeDescribe, kafkago.ACLOperationTypeRead)

	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	u.create(configMaps, namespace, configMap("a", "1"))
	as := func(user, password string) map[string]string {
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return onKafka(topic{t, broker.AddrOf(kafkabroker.SASLPlaintext), name}, map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace,
			"KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "KAFKA_USER": user, "KAFKA_PASSWORD_FILE": file,
		})
	}
	f := newForwarder(t, cp.Kubeconfig(), "", as("writer", "w-password"))
	f.start().idle()
	topic{t, broker.Addr(), name}.awaitKinds(map[string]string{key("configmaps", namespace, "a"): "snapshot"})
	newForwarder(t, cp.Kubeconfig(), "", as("reader", "r-password")).verified()
	f.stop()
	f.start().idle() // the topics are there now, and are checked
	f.stop()
}

// allow adds ACLs, as somebody who may do everything.
func allow(t *testing.T, addr, user string, on kafkago.ResourceType, names []string, operations ...kafkago.ACLOperationType) {
	t.Helper()
	var entries []kafkago.ACLEntry
	for _, name := range names {
		for _, operation := range operations {
			entries = append(entries, kafkago.ACLEntry{
				ResourceType: on, ResourceName: name, ResourcePatternType: kafkago.PatternTypeLiteral,
				Principal: "User:" + user, Host: "*", Operation: operation, PermissionType: kafkago.ACLPermissionTypeAllow,
			})
		}
	}
	client := &kafkago.Client{Addr: kafkago.TCP(addr)}
	response, err := client.CreateACLs(t.Context(), &kafkago.CreateACLsRequest{ACLs: entries})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range response.Errors {
		if err != nil {
			t.Fatal(err)
		}
	}
}
