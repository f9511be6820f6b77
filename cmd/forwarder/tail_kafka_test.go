package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// kafkaTailBus returns a tailBus on a topic with one partition, so that all events are in order.
func kafkaTailBus(t *testing.T, addr, topic, cluster string, mode kafka.ContentMode) *tailBus {
	t.Helper()
	bus, err := kafka.Open(kafka.Options{
		Broker: broker.Options{Addrs: []string{addr}}, Cluster: cluster, Topic: topic, Partitions: 1, Idempotent: true,
		ContentMode: mode, Writer: "test", AckTimeout: tailLimit, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return newTailBusOn(t, bus, cluster)
}

func TestTailKafka(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	t.Setenv("KUBERELAY_SINK", "kafka")
	t.Setenv("KUBERELAY_KAFKA_BROKERS", b.Addr())
	for _, mode := range []kafka.ContentMode{kafka.Binary, kafka.Structured} {
		topic := kafkabrokertest.TopicName("tail-" + string(mode))
		t.Setenv("KUBERELAY_KAFKA_TOPIC", topic)
		kafkaTailBus(t, b.Addr(), topic, "prod", mode).some()
		for _, tc := range []struct{ args, want string }{
			{"--from-start --count=8", `
writer started ` + topic + `:0 test
snapshot started pods
snapshot pods default/web-1 v1 watch
snapshot completed pods 1 object
created deployments.apps shop/cart v2 watch
updated pods default/web-1 v3 watch
created clusterroles.rbac.authorization.k8s.io "\x1b[2J" v4 watch
deleted pods default/web-1 v5 watch
`},
			{"--last --count=5", `
writer started ` + topic + `:0 test
snapshot completed pods 1 object
created deployments.apps shop/cart v2 watch
created clusterroles.rbac.authorization.k8s.io "\x1b[2J" v4 watch
deleted pods default/web-1 v5 watch
`},
			{"--from-start --resource=deployments.apps --count=1", "\ncreated deployments.apps shop/cart v2 watch\n"},
			{"--from-start -n=default --count=1", "\nsnapshot pods default/web-1 v1 watch\n"},
		} {
			stdout, stderr := runTail(t, 0, strings.Fields(tc.args)...)
			if got := "\n" + squeeze(stdout); got != tc.want || stderr != "" {
				t.Errorf("%s %s: got%s, want%s, stderr %q", mode, tc.args, got, tc.want, stderr)
			}
		}
	}
}

// TestTailKafkaWaits_Slow verifies the messages that a user sees while tail waits for a broker, for a topic,
// for events, and for a broker that restarts.
func TestTailKafkaWaits_Slow(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{})
	b.Stop()
	t.Setenv("KUBERELAY_SINK", "kafka")
	t.Setenv("KUBERELAY_KAFKA_BROKERS", b.Addr())
	p := startTail(t, "--resource=pods")
	p.stderr.want("; trying again")
	b.Start()
	p.stderr.want("forwarder: the topic kuberelay does not exist yet; waiting for a forwarder")
	bus := kafkaTailBus(t, b.Addr(), "kuberelay", "prod", kafka.Binary)
	bus.put(event.Created, tailPods, "default", "a")
	p.stdout.want("created pods default/a v1 watch")
	p.stderr.want("forwarder: reading the bus")
	b.Kill()
	p.stderr.want("; trying again")
	b.Start()
	p.stderr.want("forwarder: reading the bus")
	bus.wait()
	bus.put(event.Updated, tailPods, "default", "a")
	p.stdout.want("updated pods default/a v2 watch")
	p.cancel()
	p.exits(0)
}

// TestTailKafkaMisconfigured verifies that tail exits with a fix in the message after an error that a
// retry does not fix.
func TestTailKafkaMisconfigured(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext}, Users: map[string]string{"reader": "right"},
	})
	t.Setenv("KUBERELAY_SINK", "kafka")
	t.Setenv("KUBERELAY_KAFKA_BROKERS", b.AddrOf(kafkabroker.SASLPlaintext))
	t.Setenv("KUBERELAY_KAFKA_SASL_MECHANISM", "SCRAM-SHA-256")
	t.Setenv("KUBERELAY_KAFKA_USER", "reader")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERELAY_KAFKA_PASSWORD_FILE", file)
	_, stderr := runTail(t, exitUsage)
	if !strings.Contains(stderr, `rejected user "reader"`) || strings.Contains(stderr, "hunter2") {
		t.Errorf("got %q", stderr)
	}
}
