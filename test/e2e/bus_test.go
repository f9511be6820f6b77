package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/schematest"
)

// anyBus is NATS or Kafka, for tests that are identical on both.
type anyBus struct {
	t   *testing.T
	url string            // the URL of NATS, empty on Kafka
	set map[string]string // variables of a forwarder that publishes to Kafka
	harness.Recorder

	foreign bool // programs other than forwarders publish to the bus
}

// onBothBuses runs a test once with a new stream and once with a new topic.
func onBothBuses(t *testing.T, test func(t *testing.T, bus *anyBus)) {
	t.Helper()
	t.Run("nats", func(t *testing.T) {
		bus := &anyBus{t: t, url: natsServer(t).URL}
		bus.record(harness.RecordNATS(bus.url, "KUBERELAY"))
		test(t, bus)
	})
	t.Run("kafka", func(t *testing.T) {
		s := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())}
		bus := &anyBus{t: t, set: onKafka(s, nil)}
		bus.record(harness.RecordKafka(s.addr, s.name))
		test(t, bus)
	})
}

func (b *anyBus) record(r harness.Recorder, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	b.Recorder = r
	b.t.Cleanup(r.Close)
	b.t.Cleanup(b.checkSchemas)
}

// checkSchemas validates every event on the bus with docs/schemas/event.v1.json.
func (b *anyBus) checkSchemas() {
	all, _, err := b.All()
	if b.foreign || err != nil || b.t.Failed() {
		return
	}
	schema := schematest.Event(b.t)
	for _, m := range all {
		if m.Body == nil {
			continue // a tombstone or a consistency point
		}
		m.Attributes["datacontenttype"] = "application/json" // Kafka uses the header content-type for this attribute
		text, err := schematest.Structured(m.Attributes, m.Data)
		if err == nil {
			err = schema.Validate(text)
		}
		if err != nil {
			b.t.Errorf("%s: %v\n%s", m.Place, err, text)
		}
	}
	if len(all) == 0 {
		b.t.Error("no event was read")
	}
}

// forwarder returns a forwarder that publishes to the bus. It isn't started.
func (b *anyBus) forwarder(kubeconfig string, set map[string]string) *forwarder {
	all := map[string]string{}
	for _, more := range []map[string]string{b.set, set} {
		for k, v := range more {
			all[k] = v
		}
	}
	return newForwarder(b.t, kubeconfig, b.url, all)
}

// all returns every message that is currently on the bus.
func (b *anyBus) all() []harness.Received {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	if err := b.CatchUp(ctx, limit); err != nil {
		b.t.Fatal(err)
	}
	all, missed, err := b.All()
	if err != nil || missed {
		b.t.Fatalf("not everything on the bus was read: missed %v, %v", missed, err)
	}
	return all
}

// events returns the object events on the bus by partition key.
func (b *anyBus) events() map[string][]harness.Received {
	b.t.Helper()
	events := map[string][]harness.Received{}
	for _, m := range b.all() {
		if t := m.Attributes["type"]; strings.Contains(t, ".object.") {
			key := m.Attributes["partitionkey"]
			events[key] = append(events[key], m)
		}
	}
	return events
}

// count returns the number of object events.
func (b *anyBus) count() int {
	b.t.Helper()
	n := 0
	for _, all := range b.events() {
		n += len(all)
	}
	return n
}

// awaitKinds waits until the events of an object have these types, in order, and returns the events.
func (b *anyBus) awaitKinds(key, want string) []harness.Received {
	b.t.Helper()
	var of []harness.Received
	poll.Try(b.t, key+" has "+want, func(context.Context) error {
		of = b.events()[key]
		if got := kindsOf(of); got != want {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	return of
}

func kindsOf(all []harness.Received) string {
	words := make([]string, len(all))
	for i := range all {
		words[i] = all[i].Kind()
	}
	return strings.Join(words, " ")
}
