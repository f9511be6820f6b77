package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// onKafka returns the variables of a forwarder that writes to a topic.
func onKafka(s topic, more map[string]string) map[string]string {
	set := map[string]string{
		"SINK": "kafka", "KAFKA_BROKERS": s.addr, "KAFKA_TOPIC": s.name, "KAFKA_TRANSACTIONAL_ID": s.name,
		"NATS_ACK_TIMEOUT": "", "KAFKA_ACK_TIMEOUT": "3s",
	}
	for k, v := range more {
		set[k] = v
	}
	return set
}

// quietNamespace creates a namespace and waits until it contains everything that controllers create
// in a new namespace.
func quietNamespace(t *testing.T, u *user) string {
	t.Helper()
	namespace := controlplanetest.Namespace(t, cluster.ControlPlane(t))
	poll.Try(t, "the namespace has everything that controllers create in it", func(ctx context.Context) error {
		_, err := u.of(configMaps, namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	return namespace
}

// verified runs "forwarder verify", which must find no problem.
func (f *forwarder) verified() {
	f.t.Helper()
	code, stdout, stderr := f.run("verify", settle)
	if code != 0 || !strings.Contains(stdout, "0 differences") || !strings.Contains(stdout, "partitions read to the end") {
		f.t.Errorf("verify ended with %d:\n%s%s", code, stdout, stderr)
	}
	f.t.Logf("verify: %s", strings.TrimSpace(stdout))
}

// TestKafka verifies the life of objects on Kafka: objects that existed before the first start,
// changes while the forwarder runs, a restart without a change, and changes while the forwarder is
// down.
func TestKafka(t *testing.T) {
	for _, mode := range []string{"binary", "structured"} {
		t.Run(mode, func(t *testing.T) {
			bus := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName("e2e-" + mode)}
			cp := cluster.ControlPlane(t)
			u := newUser(t, cp)
			namespace := quietNamespace(t, u)
			f := newForwarder(t, cp.Kubeconfig(), "", onKafka(bus, map[string]string{
				"RESOURCES": "configmaps", "NAMESPACES": namespace, "CONTENT_MODE": mode,
			}))
			for _, name := range []string{"deleted", "recreated", "changed", "same"} {
				u.create(configMaps, namespace, configMap(name, "1"))
			}
			of := func(name string) string { return key("configmaps", namespace, name) }
			marker := clusterName + "/_control/snapshot/core/configmaps"

			f.start().idle()
			u.create(configMaps, namespace, configMap("live", "1"))
			bus.awaitKinds(map[string]string{
				of("same"): "snapshot", of("deleted"): "snapshot", of("live"): "created", marker: "started completed",
			})
			u.label(configMaps, namespace, "live", "yes")
			bus.awaitKinds(map[string]string{of("live"): "created updated"})
			u.delete(configMaps, namespace, "live")
			all := bus.awaitKinds(map[string]string{of("live"): "created updated deleted"})
			f.verified()

			before := events(all)
			for range 2 {
				f.kill()
				f.start().idle()
			}
			f.stop()
			if got := events(bus.read()) - before; got != 0 {
				t.Errorf("%d events were published by restarts, want 0", got)
			}

			u.delete(configMaps, namespace, "deleted")
			u.delete(configMaps, namespace, "recreated")
			recreated := u.create(configMaps, namespace, configMap("recreated", "2"))
			u.label(configMaps, namespace, "changed", "yes")
			f.start().idle()
			all = bus.awaitKinds(map[string]string{
				of("deleted"): "snapshot deleted", of("recreated"): "snapshot deleted created", of("changed"): "snapshot updated",
				of("same"): "snapshot", of("live"): "created updated deleted", marker: "started completed",
			})
			for _, name := range []string{"deleted", "recreated"} {
				state, gone := all[of(name)][0], all[of(name)][1]
				if gone.attributes["cause"] != "reconcile" || gone.attributes["finalstateunknown"] != "" || !sameJSON(t, gone.data, state.data) {
					t.Errorf("%s: the delete has cause %q, finalstateunknown %q and data %s, want the last state on the bus",
						name, gone.attributes["cause"], gone.attributes["finalstateunknown"], gone.data)
				}
			}
			if got, want := decode(t, all[of("recreated")][2].data), asPublished(recreated); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			f.verified()
			bus.checkOrder()

			code, stdout, stderr := f.run("tail", "--last", "--resource=configmaps", "--namespace="+namespace, "--count=6")
			if code != 0 || !strings.Contains(stdout, namespace+"/recreated") || strings.Count(stdout, " deleted   configmaps ") != 2 {
				t.Errorf("tail ended with %d:\n%s%s", code, stdout, stderr)
			}
			code, stdout, stderr = f.run("tail", "--diff", "--since=1h", "--resource=configmaps", "--namespace="+namespace, "--count=12")
			if code != 0 || strings.Count(stdout, "\n@@ ") != 2 || strings.Contains(stdout, "not known") || !strings.Contains(stdout, "\n+  labels:\n") {
				t.Errorf("tail --diff ended with %d:\n%s%s", code, stdout, stderr)
			}
			f.stop()
		})
	}
}

func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	return reflect.DeepEqual(decode(t, a), decode(t, b))
}

// TestKafkaOutage_Slow kills the broker under load. After the broker's return, the topic must contain
// every change, once and in order.
func TestKafkaOutage_Slow(t *testing.T) {
	broker := kafkabrokertest.Start(t, kafkabroker.Options{})
	bus := topic{t, broker.Addr(), "outage"}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), "", onKafka(bus, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}))
	f.start().idle()
	want := map[string]string{}
	for n := range 60 {
		name := fmt.Sprintf("c%d", n)
		u.create(configMaps, namespace, configMap(name, "1"))
		switch n {
		case 20:
			broker.Kill()
		case 40:
			u.delete(configMaps, namespace, "c39") // the bus has never stored it
			broker.Start()
		}
		want[key("configmaps", namespace, name)] = "created"
	}
	delete(want, key("configmaps", namespace, "c39"))
	f.idle()
	bus.awaitKinds(want)
	f.verified()
	bus.checkOrder()
	f.stop()
}

// TestKafkaTakeover starts a second forwarder, which takes over. The first one must end by itself
// and log the reason.
func TestKafkaTakeover(t *testing.T) {
	bus := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName("takeover")}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	set := onKafka(bus, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	first := newForwarder(t, cp.Kubeconfig(), "", set).start()
	first.idle()
	second := newForwarder(t, cp.Kubeconfig(), "", set).start()
	second.idle()
	u.create(configMaps, namespace, configMap("a", "1")) // both forwarders want to publish it
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	select {
	case <-first.Ended():
	case <-ctx.Done():
		t.Fatal("the first forwarder is still running")
	}
	if _, err := first.Failure(); err == nil || !strings.Contains(first.log(), "another writer took over") {
		t.Errorf("the first forwarder ended with %v", err)
	}
	second.idle()
	bus.awaitKinds(map[string]string{key("configmaps", namespace, "a"): "created"})
	second.verified()
	bus.checkOrder()
	second.stop()
}

// TestKafkaTopicsOfResources verifies a topic name template that gives each resource its own topic.
func TestKafkaTopicsOfResources(t *testing.T) {
	addr, name := kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName("each")
	template := topic{t, addr, name + ".{group}.{resource}"}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), "", onKafka(template, map[string]string{
		"RESOURCES": "configmaps,secrets", "NAMESPACES": namespace, "KAFKA_TRANSACTIONAL_ID": name,
	}))
	f.start().idle()
	u.create(configMaps, namespace, configMap("a", "1"))
	u.create(gvr("", "v1", "secrets"), namespace, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}")
	topic{t, addr, name + ".core.configmaps"}.awaitKinds(map[string]string{key("configmaps", namespace, "a"): "created"})
	secrets := topic{t, addr, name + ".core.secrets"}.awaitKinds(map[string]string{key("secrets", namespace, "s"): "created"})
	if data := secrets[key("secrets", namespace, "s")][0].data; strings.Contains(string(data), "hunter2") || strings.Contains(string(data), "aHVudGVyMg") {
		t.Errorf("the value of the Secret is on the bus: %s", data)
	}
	f.verified()
	f.stop()
}

// TestKafkaWithoutIdempotence verifies a forwarder that doesn't use the idempotent producer.
func TestKafkaWithoutIdempotence(t *testing.T) {
	bus := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName("plain")}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), "", onKafka(bus, map[string]string{
		"RESOURCES": "configmaps", "NAMESPACES": namespace, "KAFKA_IDEMPOTENT": "false", "KAFKA_TRANSACTIONAL_ID": "",
		"KAFKA_ACK_TIMEOUT": "1m", // no acknowledgement is so slow that the event is published twice
	}))
	f.start().idle()
	u.create(configMaps, namespace, configMap("a", "1"))
	bus.awaitKinds(map[string]string{key("configmaps", namespace, "a"): "created"})
	f.kill()
	u.delete(configMaps, namespace, "a")
	f.start().idle()
	bus.awaitKinds(map[string]string{key("configmaps", namespace, "a"): "created deleted"})
	f.verified()
	f.stop()
}
