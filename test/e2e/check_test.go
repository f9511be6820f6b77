package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	kafkago "github.com/segmentio/kafka-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// checked runs "forwarder check" with the given settings. Only the checks named in want may warn or
// fail, and their message and fix must contain the given text.
func (f *forwarder) checked(what string, set, want map[string]string, args ...string) map[string]check.Result {
	f.t.Helper()
	f.Configure(set)
	code, stdout, stderr := f.run(append([]string{"check", "--output=json"}, args...)...)
	var report check.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || stderr != "" {
		f.t.Fatalf("%s: %v: %s%s", what, err, stdout, stderr)
	}
	if report.Status.Code() != code || (code == 0) != (len(want) == 0) {
		f.t.Errorf("%s: it ended with %d: %s", what, code, report.Summary)
	}
	by := map[string]check.Result{}
	for _, r := range report.Checks {
		by[r.ID] = r
		words, wrong := want[r.ID]
		if wrong != (r.Status.Code() > 0) {
			f.t.Errorf("%s: %+v", what, r)
		}
		if !strings.Contains(r.Message+" "+r.Fix, words) {
			f.t.Errorf("%s: %+v, want %q", what, r, words)
		}
	}
	return by
}

// written writes a temporary file and returns its path.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCheck_Slow causes one fault after the other. The command must name the cause and nothing else, and
// must change nothing.
func TestCheck_Slow(t *testing.T) {
	bus := natstest.StartProcess(t, `
accounts: {
  A: {
    jetstream: enabled
    users: [
      {user: forwarder, password: right}
      {user: little, password: right, permissions: {
        publish: {allow: [">"], deny: ["$JS.API.STREAM.PURGE.>"]}, subscribe: ["_INBOX.kuberelay.>"]
      }}
    ]
  }
}`)
	nc, err := nats.Connect(bus.URL, nats.UserInfo("forwarder", "right"), nats.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	password := written(t, "right")
	settings := func(more map[string]string) map[string]string {
		return merged(map[string]string{
			"RESOURCES": "configmaps,services", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "0s", "NATS_USER": "forwarder", "NATS_PASSWORD_FILE": password,
		}, more)
	}
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, settings(nil))

	by := f.checked("before installing", settings(nil), nil, "--pre", "--memory-limit=1Gi")
	for id, words := range map[string]string{
		"nats-stream": "does not exist yet", "memory-limit": " bytes on average, the forwarder needs ", "forwarder-status": "not installed yet", "api-server-version": "v1.",
	} {
		if !strings.Contains(by[id].Message, words) {
			t.Errorf("%+v, want %q", by[id], words)
		}
	}
	if len(by) < 30 {
		t.Errorf("there are %d checks", len(by))
	}
	if _, err := js.Stream(t.Context(), "KUBERELAY"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("after the check, the stream: %v", err)
	}
	f.checked("memory", settings(nil), map[string]string{"memory-limit": "set the memory limit to "}, "--pre", "--memory-limit=16Mi")
	f.checked("resource", settings(map[string]string{"RESOURCES": "configmaps,servces"}),
		map[string]string{"resources-matched": "servces (did you mean services?)"}, "--pre")
	f.checked("namespace", settings(map[string]string{"NAMESPACES": namespace + "," + namespace + "x"}),
		map[string]string{"namespaces-found": "did you mean " + namespace + "?"}, "--pre")
	f.checked("field selector", settings(map[string]string{"FIELD_SELECTOR": "spec.nodeName=a"}), map[string]string{"lists": "configmaps ("}, "--pre")
	f.checked("configuration", settings(map[string]string{"SINK": "nat"}), map[string]string{"configuration": "KUBERELAY_SINK"}, "--pre")
	f.checked("password", settings(map[string]string{"NATS_PASSWORD_FILE": written(t, "wrong")}),
		map[string]string{"bus-accepts": "KUBERELAY_NATS_PASSWORD_FILE"}, "--pre")
	f.checked("permission", settings(map[string]string{"NATS_USER": "little"}),
		map[string]string{"nats-permissions": "publish $JS.API.STREAM.PURGE.KUBERELAY"}, "--pre")
	_, cert, key := tlstest.NewCA(t).Expired("forwarder")
	f.checked("certificate", settings(map[string]string{"LISTEN_TLS_CERT_FILE": cert, "LISTEN_TLS_KEY_FILE": key}),
		map[string]string{"listen-certificate": "expired at "}, "--pre")

	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"kuberelay.>"}}); err != nil {
		t.Fatal(err)
	}
	f.checked("subjects", settings(nil), map[string]string{"nats-stream": "KUBERELAY_NATS_STREAM=OTHER"}, "--pre")
	if err := js.DeleteStream(t.Context(), "OTHER"); err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBERELAY", Subjects: []string{"kuberelay.>"}, MaxMsgsPerSubject: 8, Discard: jetstream.DiscardNew, MaxAge: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.checked("retention", settings(nil), map[string]string{"nats-stream-settings": "nats stream edit KUBERELAY --max-age=0s"}, "--pre")
	if err := js.DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	f.checked("no forwarder", settings(nil), map[string]string{"forwarder-status": "does not respond", "nats-stream": "does not exist"}, "--memory-limit=1Gi")

	elected := map[string]string{"LEADER_ELECTION": "true", "LEASE_NAMESPACE": namespace}
	f.checked("no leader", settings(elected), map[string]string{
		"forwarder-status": "", "nats-stream": "", "lease": "nobody holds the Lease",
	}, "--memory-limit=1Gi")
	if _, err := u.of(gvr("coordination.k8s.io", "v1", "leases"), namespace).Get(t.Context(), "kuberelay", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the check, the Lease: %v", err)
	}
	f.start().idle()
	s, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	before := s.CachedInfo().State.LastSeq
	by = f.checked("installed", settings(elected), nil, "--memory-limit=1Gi")
	if !strings.Contains(by["lease"].Message, " holds the Lease ") || by["cluster-name"].Status != check.OK {
		t.Errorf("%+v, %+v", by["lease"], by["cluster-name"])
	}
	f.checked("a second forwarder", settings(map[string]string{"LEASE_NAMESPACE": namespace}),
		map[string]string{"another-writer": "KUBERELAY_LEADER_ELECTION is false"}, "--memory-limit=1Gi")
	if info, err := s.Info(t.Context()); err != nil || info.State.LastSeq != before || info.State.Consumers > 0 {
		t.Errorf("after the checks, the stream is at %+v, %v; before, its last message was %d", info.State, err, before)
	}
	f.Configure(settings(elected))
	f.stop()
}

// watches returns a check of what "forwarder resources" reports as watched for a resource: "yes" or
// "no".
func (f *forwarder) watches(resource, want string) func(context.Context) error {
	return func(context.Context) error {
		_, stdout, stderr := f.run("resources", resource)
		if !strings.Contains(strings.Join(strings.Fields(stdout), " "), "Watched: "+want) {
			return fmt.Errorf("%s%s", stdout, stderr)
		}
		return nil
	}
}

// TestCheckPermissions verifies that check names missing permissions in the cluster, and then
// invalid credentials.
func TestCheckPermissions(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	mayRead := u.letRead(namespace, `"configmaps", "services"`)
	settings := map[string]string{
		"RESOURCES": "configmaps,services", "NAMESPACES": namespace, "LEADER_ELECTION": "true", "LEASE_NAMESPACE": namespace, "METRICS_AUTH": "true",
	}
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, settings)
	missing := map[string]string{
		"permission-cluster-identity": "grant get on the namespace kube-system", "permission-definitions": "watch apiservices",
		"permission-lease": "update leases.coordination.k8s.io/kuberelay in the namespace " + namespace, "lease": "cannot be read",
		"permission-reviews": "create tokenreviews", "permission-namespaces": "may not list namespaces/" + namespace,
	}
	f.await("the API server knows the role", f.watches("services", "yes"))
	f.checked("all roles", settings, missing, "--pre")
	mayRead(`"configmaps"`)
	f.await("the API server knows the new role", f.watches("services", "no"))
	services := "services in the namespace " + namespace
	f.checked("role", settings, merged(missing, map[string]string{
		"permission-list": services, "permission-watch": services, "permission-get": services,
	}), "--pre")

	newForwarder(t, withToken(t, cp, "wrong"), bus.URL, settings).checked("token", settings, map[string]string{"api-server-credentials": "check the token"}, "--pre")
}

// TestCheckKafka_Slow is TestCheck_Slow for Kafka.
func TestCheckKafka_Slow(t *testing.T) {
	const name = "checked"
	broker, as := guardedBroker(t, name)
	admin := kafkabrokertest.Client(t, broker.Addr())
	cp := cluster.ControlPlane(t)
	namespace := quietNamespace(t, newUser(t, cp))
	settings := as("forwarder", "w-password", namespace)
	f := newForwarder(t, cp.Kubeconfig(), "", settings)
	by := f.checked("before installing", settings, nil, "--pre")
	if !strings.Contains(by["kafka-topics"].Message, "the brokers would create them: "+name) {
		t.Errorf("%+v", by["kafka-topics"])
	}
	topics := func() (n int) {
		t.Helper()
		all, err := admin.Metadata(t.Context(), &kafkago.MetadataRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range all.Topics {
			if strings.HasPrefix(found.Name, name) {
				n++
			}
		}
		return n
	}
	if n := topics(); n > 0 {
		t.Errorf("the check created %d topics", n)
	}
	f.checked("password", as("forwarder", "wrong", namespace), map[string]string{"bus-accepts": "KUBERELAY_KAFKA_PASSWORD_FILE"}, "--pre")
	f.checked("replication", merged(settings, map[string]string{"KAFKA_REPLICATION": "3"}), map[string]string{
		"kafka-topics": "KUBERELAY_KAFKA_REPLICATION", "kafka-checkpoint-topic": "KUBERELAY_KAFKA_REPLICATION",
	}, "--pre")

	f.Configure(settings)
	f.start().idle()
	by = f.checked("installed", settings, nil)
	if by["cluster-name"].Status != check.OK || by["kafka-permissions"].Status != check.OK {
		t.Errorf("%+v, %+v", by["cluster-name"], by["kafka-permissions"])
	}
	f.checked("cluster", merged(settings, map[string]string{"CLUSTER_NAME": "another"}), nil, "--pre")
	f.checked("partitions", merged(settings, map[string]string{"KAFKA_PARTITIONS": "5"}), map[string]string{"kafka-partitions": "has 3 partitions"})
	f.checked("cleanup policy", merged(settings, map[string]string{"KAFKA_CLEANUP_POLICY": "delete"}),
		map[string]string{"kafka-topic-settings": "kafka-configs.sh"})
	// The reader may not describe the checkpoint topic, so check reports the topic as missing.
	f.checked("ACL", as("reader", "r-password", namespace), map[string]string{
		"kafka-permissions": "kafka-acls.sh", "kafka-topic-settings": "grant DescribeConfigs", "kafka-checkpoint-topic": "",
	})
	f.Configure(settings)
	f.stop()
}
