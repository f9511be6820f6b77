package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// forgery describes a message from a foreign writer that is derived from a genuine one.
type forgery struct {
	object string            // name of the object
	change map[string]string // attributes to change; "" removes an attribute
	data   string            // "" keeps the genuine data
	raw    string            // replaces the whole message with text that isn't a CloudEvent
	gone   bool              // the test deletes the object before the forgery
	hidden bool              // the message doesn't contradict the cluster
}

const future = "00000999999999999999"

func forgeries() []forgery {
	other := map[string]string{"uid": "b", "id": "b.7", "resourceversion": "7", "sequence": "0000.00000000000000000007"}
	ahead := map[string]string{"resourceversion": future[5:], "sequence": "0000." + future, "type": "io.kuberelay.object.updated"}
	later := map[string]string{"sequence": "7777." + future}
	deleted := map[string]string{"type": "io.kuberelay.object.deleted"}
	const stranger = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","uid":"b","resourceVersion":"7"}}`
	return []forgery{
		{object: "copied", hidden: true},
		{object: "other-data", data: "FORGED"},
		{object: "deleted", change: deleted},
		{object: "deselected", change: map[string]string{"type": "io.kuberelay.object.deselected"}},
		{object: "other-uid", change: other, data: stranger},
		{object: "ahead", change: ahead},
		{object: "deleted-ahead", change: merged(ahead, deleted)},
		{object: "later-epoch", change: later},
		{object: "truncated", change: map[string]string{"truncated": "true"}},
		{object: "garbage", raw: "not an event"},
		{object: "gone-and-there", gone: true},
		{object: "gone-and-other", gone: true, change: other, data: stranger},
		{object: "gone-and-ahead", gone: true, change: ahead},
		{object: "gone-and-garbage", gone: true, raw: "not an event"},
		{object: "gone-and-deleted", gone: true, change: merged(ahead, deleted), hidden: true},
	}
}

func merged(all ...map[string]string) map[string]string {
	m := map[string]string{}
	for _, more := range all {
		maps.Copy(m, more)
	}
	return m
}

// of returns the attributes and the data of the forgery, derived from the message m.
func (f forgery) of(m harness.Received) (attributes map[string]string, data []byte) {
	attributes, data = merged(m.Attributes, f.change), m.Data
	maps.DeleteFunc(attributes, func(_, value string) bool { return value == "" })
	switch f.data {
	case "":
	case "FORGED":
		data = []byte(strings.Replace(string(data), `"data":{`, `"data":{"forged":"yes",`, 1))
	default:
		data = []byte(f.data)
	}
	return attributes, data
}

// forge publishes a forgery, as any client with write permission can.
func (b *anyBus) forge(f forgery, m harness.Received) {
	b.t.Helper()
	b.foreign = true
	attributes, data := f.of(m)
	if b.url != "" {
		nc, err := natsgo.Connect(b.url, natsgo.Timeout(limit))
		if err != nil {
			b.t.Fatal(err)
		}
		defer nc.Close()
		message := natsgo.NewMsg(m.Subject)
		message.Data = data
		for name, value := range attributes {
			message.Header.Set("ce-"+name, value)
		}
		if f.raw != "" {
			message.Header, message.Data = natsgo.Header{}, []byte(f.raw)
		}
		if _, err := nc.RequestMsgWithContext(b.t.Context(), message); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.set["KAFKA_BROKERS"]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: m.Topic, Partition: int32(m.Partition), Key: []byte(m.Subject), Value: data}
	for name, value := range attributes {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	if f.raw != "" {
		record.Headers, record.Value = nil, []byte(f.raw)
	}
	if err := client.ProduceSync(b.t.Context(), record).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// problems runs verify. It returns the number of foreign events and all other problems. It ignores
// the problems of hidden forgeries, which aren't repaired and break rules about the order.
func (f *forwarder) problems() (others []string, foreign int) {
	f.t.Helper()
	hidden := map[string]bool{}
	for _, of := range forgeries() {
		hidden[of.object] = of.hidden
	}
	_, stdout, stderr := f.run("verify", settle, "--output=json")
	var report struct {
		Problems []struct{ Problem, Name, Detail string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		f.t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	for _, p := range report.Problems {
		switch {
		case p.Problem == "foreign":
			foreign++
		case !hidden[p.Name] || p.Problem != "misordered" && p.Problem != "malformed":
			others = append(others, p.Problem+" "+p.Name+": "+p.Detail)
		}
	}
	return others, foreign
}

// TestForeignEvents verifies that the forwarder repairs and counts the events of a foreign writer.
// After the next refresh of the checkpoint, the bus agrees with the cluster again.
func TestForeignEvents(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "CHECKPOINT_REFRESH": "1s"})
		for _, of := range forgeries() {
			u.create(configMaps, namespace, configMap(of.object, "1"))
		}
		f.start().idle()
		for _, of := range forgeries() {
			if of.gone {
				u.delete(configMaps, namespace, of.object)
			}
		}
		for _, of := range forgeries() { // the forwarder may be idle because it hasn't received the deletes yet
			if of.gone {
				bus.awaitKinds(key("configmaps", namespace, of.object), "snapshot deleted")
			}
		}
		f.idle()
		if got := f.metric("kuberelay_foreign_events_total"); got != 0 {
			t.Fatalf("%v foreign events before any was written", got)
		}

		genuine := bus.events()
		want := 0
		for _, of := range forgeries() {
			bus.forge(of, genuine[key("configmaps", namespace, of.object)][0])
			if !of.hidden {
				want++
			}
		}
		poll.Try(t, "every foreign event is repaired and counted", func(context.Context) error {
			if got := f.metric("kuberelay_foreign_events_total"); int(got) < want {
				return fmt.Errorf("%v are counted, want %d", got, want)
			}
			return nil
		})
		f.idle()
		if others, foreign := f.problems(); len(others) > 0 || foreign < want {
			t.Errorf("verify finds %q and %d foreign events, want only these, at least %d", others, foreign, want)
		}
		if got := f.metric("kuberelay_foreign_events_total"); int(got) != want {
			t.Errorf("%v foreign events are counted, want %d", got, want)
		}
		if !strings.Contains(f.log(), "foreign event on the bus") {
			t.Error("the log does not name a foreign event")
		}
		if _, status, err := f.get(t.Context(), "/readyz"); err != nil || !strings.Contains(status, fmt.Sprintf("bus: ok, %d foreign events repaired", want)) {
			t.Errorf("the status is %q, %v", status, err)
		}
		stored := func() (n uint64) {
			t.Helper()
			poll.Try(t, "the bus says how many messages it has stored", func(ctx context.Context) (err error) {
				n, err = bus.Stored(ctx)
				return err
			})
			return n
		}
		before := stored()
		f.rests() // longer than the refresh period
		if now := stored(); now != before {
			t.Errorf("%d messages were stored at rest", now-before)
		}

		// The forgeries don't affect later events.
		for _, of := range forgeries() {
			if of.gone {
				u.create(configMaps, namespace, configMap(of.object, "2"))
			} else {
				u.label(configMaps, namespace, of.object, "yes")
			}
		}
		f.idle()
		if others, _ := f.problems(); len(others) > 0 {
			t.Errorf("after changes, verify finds %q", others)
		}
		for _, of := range forgeries() {
			u.delete(configMaps, namespace, of.object)
		}
		f.idle()
		if list, err := u.of(configMaps, namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
			t.Fatalf("%d objects are left, %v", len(list.Items), err)
		}
		if others, _ := f.problems(); len(others) > 0 {
			t.Errorf("after the deletes, verify finds %q", others)
		}
	})
}
