package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// TestTailOfClusters verifies which clusters tail shows if the bus has three. By default, it shows all of
// them. KUBERELAY_CLUSTER_NAME limits it to one, and --cluster has precedence. Unwanted events come first
// on the bus, so a bug prints them instead of the wanted events.
func TestTailOfClusters(t *testing.T) {
	all := []string{"staging", "staging.eu", "prod"} // in the order of their events on the bus
	test := func(t *testing.T, publisher func(cluster string) *tailBus) {
		for _, name := range all {
			publisher(name).put(event.Created, tailPods, "default", name)
		}
		for _, tc := range []struct {
			configured, args string
			want             []string
		}{
			{"", "", all},
			{"prod", "", []string{"prod"}},
			{"", "--cluster=prod", []string{"prod"}},
			{"staging", "--cluster=staging.eu", []string{"staging.eu"}},
			{"staging", "--cluster=prod,staging.eu", []string{"staging.eu", "prod"}},
			{"staging", "--cluster=prod --cluster=staging.eu --namespace=default", []string{"staging.eu", "prod"}},
			{"prod", "--cluster=*", all},
		} {
			t.Setenv("KUBERELAY_CLUSTER_NAME", tc.configured)
			for _, from := range []string{"--from-start", "--last"} {
				args := append(strings.Fields(tc.args), from, "--resource=pods", "--count="+strconv.Itoa(len(tc.want)))
				stdout, _ := runTail(t, 0, args...)
				var got []string
				for line := range strings.Lines(squeeze(stdout)) {
					_, name, _ := strings.Cut(strings.Fields(line)[2], "/")
					got = append(got, name)
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("%q with %q configured: got %q, want %q", args, tc.configured, got, tc.want)
				}
			}
		}
	}
	t.Run("nats", func(t *testing.T) {
		url := natstest.Start(t).URL
		t.Setenv("KUBERELAY_NATS_URL", url)
		test(t, func(cluster string) *tailBus { return newTailBus(t, url, cluster, nats.Binary) })
	})
	t.Run("kafka", func(t *testing.T) {
		addr, topic := kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName("tail-clusters")
		t.Setenv("KUBERELAY_SINK", "kafka")
		t.Setenv("KUBERELAY_KAFKA_BROKERS", addr)
		t.Setenv("KUBERELAY_KAFKA_TOPIC", topic)
		test(t, func(cluster string) *tailBus { return kafkaTailBus(t, addr, topic, cluster, kafka.Binary) })
	})
}

func TestTailRefusesClusters(t *testing.T) {
	for _, args := range []string{"--cluster=", "--cluster=a/b", "--cluster=prod,*"} {
		if _, stderr := runTail(t, exitUsage, args); !strings.Contains(stderr, "--cluster") {
			t.Errorf("%s: stderr %q does not name the flag", args, stderr)
		}
	}
}
