package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// scale publishes a state of a Deployment in the namespace shop.
func (b *tailBus) scale(typ event.Type, name string, replicas int, observed time.Time) {
	b.t.Helper()
	b.putBody(typ, tailDeployments, "shop", name, observed, func(version string) string {
		return fmt.Sprintf(`{"kind":"Deployment","metadata":{"name":%q,"resourceVersion":%q,"uid":%q},"spec":{"replicas":%d}}`,
			name, version, "uid-of-"+b.cluster+name, replicas)
	})
}

// scaled returns the squeezed diff that tail prints for an update by scale.
func scaled(name, uid string, from, to, before, after int) string {
	return fmt.Sprintf(`--- v%d
+++ v%d
@@ -3,4 +3,4 @@
 name: %s
 uid: %s
 spec:
- replicas: %d
+ replicas: %d
`, from, to, name, uid, before, after)
}

// onBothBuses runs a test with NATS and with Kafka, and configures the command for each bus.
func onBothBuses(t *testing.T, test func(t *testing.T, bus *tailBus)) {
	t.Run("nats", func(t *testing.T) {
		url := natstest.Start(t).URL
		t.Setenv("KUBERELAY_NATS_URL", url)
		test(t, newTailBus(t, url, "prod", nats.Binary))
	})
	t.Run("kafka", func(t *testing.T) {
		addr, topic := kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())
		t.Setenv("KUBERELAY_SINK", "kafka")
		t.Setenv("KUBERELAY_KAFKA_BROKERS", addr)
		t.Setenv("KUBERELAY_KAFKA_TOPIC", topic)
		test(t, kafkaTailBus(t, addr, topic, "prod", kafka.Binary))
	})
}

// nextMillisecond waits until the next millisecond begins, and returns that time. Kafka stores times in
// whole milliseconds. Without the wait, --since would include an event that a fast broker acknowledged
// earlier in the same millisecond.
func nextMillisecond() time.Time {
	for start := time.Now().Truncate(time.Millisecond); ; {
		if now := time.Now().Truncate(time.Millisecond); now.After(start) {
			return now
		}
	}
}

// TestTailDiffSince verifies that tail --diff finds the states before its start on the bus.
func TestTailDiffSince(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		long := time.Now().Add(-time.Hour)
		bus.scale(event.Created, "cart", 1, long)
		bus.scale(event.Updated, "cart", 2, long)
		bus.scale(event.Updated, "other", 1, long)
		since := nextMillisecond()
		bus.scale(event.Updated, "cart", 3, since.Add(time.Second))
		bus.scale(event.Created, "new", 1, since.Add(time.Second))
		bus.scale(event.Updated, "new", 2, since.Add(time.Second))
		bus.scale(event.Deleted, "cart", 3, since.Add(time.Second))
		from := "--since=" + since.Format(time.RFC3339Nano)
		const cart, created, updated, deleted = "updated deployments.apps shop/cart v4 watch", "created deployments.apps shop/new v5 watch\n", "updated deployments.apps shop/new v6 watch\n", "deleted deployments.apps shop/cart v7 watch\n"
		diffOfNew := scaled("new", "uid-of-prodnew", 5, 6, 1, 2)
		for _, tc := range []struct{ args, want string }{
			{"", cart + "\n" + created + updated + deleted},
			{"--diff", cart + "\n" + scaled("cart", "uid-of-prodcart", 2, 4, 2, 3) + created + updated + diffOfNew + deleted},
			{"--diff --skip-past", cart + ", previous state unknown\n" + created + updated + diffOfNew + deleted},
		} {
			stdout, stderr := runTail(t, 0, append(strings.Fields(tc.args), from, "--count=4")...)
			if got := squeeze(stdout); got != tc.want {
				t.Errorf("%s: got\n%s\nwant\n%s", tc.args, got, tc.want)
			}
			if tells := strings.Contains(stderr, "forwarder: reading the earlier events of the topic"); tells != (t.Name() == "TestTailDiffSince/kafka" && tc.args == "--diff") || strings.Count(stderr, "\n") > 1 {
				t.Errorf("%s: on stderr %q", tc.args, stderr)
			}
		}
	})
}

func TestTailDiffFromStart(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		bus.scale(event.Created, "cart", 1, time.Now())
		bus.scale(event.Updated, "cart", 2, time.Now())
		stdout, _ := runTail(t, 0, "--diff", "--from-start", "--count=2", "--resource=deploy")
		want := "created deployments.apps shop/cart v1 watch\nupdated deployments.apps shop/cart v2 watch\n" + scaled("cart", "uid-of-prodcart", 1, 2, 1, 2)
		if got := squeeze(stdout); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestTailDiffLast verifies that tail --diff --last prints the current states without a diff, and then
// prints a diff for each update.
func TestTailDiffLast(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		bus.scale(event.Created, "cart", 1, time.Now())
		bus.scale(event.Updated, "cart", 2, time.Now())
		p := startTail(t, "--diff", "--last", "--resource=deploy")
		if got := squeeze(p.stdout.next()); got != "updated deployments.apps shop/cart v2 watch" {
			t.Errorf("got %q", got)
		}
		bus.scale(event.Updated, "cart", 3, time.Now())
		p.stdout.want("updated deployments.apps shop/cart v3 watch")
		for line := range strings.Lines(scaled("cart", "uid-of-prodcart", 2, 3, 2, 3)) {
			p.stdout.want(strings.TrimSuffix(line, "\n"))
		}
		p.cancel()
		p.exits(0)
	})
}

// TestTailDiffFromNow verifies that even the first update after the start has a diff.
func TestTailDiffFromNow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		bus.scale(event.Created, "cart", 0, time.Now())
		p := startTail(t, "--diff", "--resource=deploy")
		limit := time.After(tailLimit)
		for n, line := 1, ""; line == ""; n++ {
			bus.scale(event.Updated, "cart", n, time.Now()) // repeats the update, because the test can't detect when tail has started
			select {
			case line = <-p.stdout.ch:
				if !strings.HasSuffix(line, "watch") {
					t.Errorf("got %q", line)
				}
			case <-limit:
				t.Fatal("nothing was printed")
			case <-time.After(10 * time.Millisecond):
			}
		}
		p.stdout.want("--- v", "+++ v", "@@ -3,4 +3,4 @@", " name: cart")
		p.cancel()
		p.exits(0)
	})
}

// TestTailDiffJSON verifies that with --diff and JSON, the events have the data format of
// KUBERELAY_DATA=change.
func TestTailDiffJSON(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		bus.scale(event.Created, "cart", 1, time.Now())
		bus.scale(event.Updated, "cart", 2, time.Now())
		stdout, _ := runTail(t, 0, "--diff", "--from-start", "--count=2", "--resource=deploy", "-o=json")
		for n, want := range []string{
			`null`,
			`[{"op":"replace","path":"/metadata/resourceVersion","value":"2"},{"op":"replace","path":"/spec/replicas","value":2}]`,
		} {
			m, err := event.ParseStructured([]byte(strings.Split(stdout, "\n")[n]))
			if err != nil {
				t.Fatal(err)
			}
			var data struct{ Patch, Previous json.RawMessage }
			if err := json.Unmarshal(m.Data, &data); err != nil {
				t.Fatal(err)
			}
			if string(data.Patch) != want || (string(data.Previous) == "null") != (want == "null") || m.Attribute("dataschema") != event.SchemaChange {
				t.Errorf("got %s, want the patch %s", m.Data, want)
			}
			object, err := event.ObjectIn(m.Attribute, m.Data)
			if err != nil || !strings.Contains(string(object), fmt.Sprintf(`"replicas":%d`, n+1)) {
				t.Errorf("got %s (%v)", object, err)
			}
		}
	})
}
