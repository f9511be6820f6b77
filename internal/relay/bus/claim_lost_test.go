package bus

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// TestALostClaimIsRenewed verifies that the next checkpoint load publishes the claim again after
// the bus lost it, or after a foreign message replaced it. A load before the first claim publishes
// nothing.
func TestALostClaimIsRenewed(t *testing.T) {
	bus := onNATS(t)
	c, err := bus.open("uid-1", "")
	if err != nil {
		t.Fatal(err)
	}
	load := func() {
		t.Helper()
		if err := c.bus.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	load()
	if got := c.last(); !reflect.DeepEqual(got, event.Claim{}) {
		t.Errorf("before the first claim, the bus has the claim %+v", got)
	}
	if err := c.settle(); err != nil {
		t.Fatal(err)
	}
	js := bus.purge()
	load()
	if got := c.last(); got.UID != "uid-1" {
		t.Errorf("after a loss, the bus has the claim %+v", got)
	}
	if _, err := js.Publish(t.Context(), subject.Claim("kuberelay", "prod"), []byte("by hand")); err != nil {
		t.Fatal(err)
	}
	load()
	if got := c.last(); got.UID != "uid-1" {
		t.Errorf("after a foreign message, the bus has the claim %+v", got)
	}
}

// purge removes all messages from the stream, like a server that loses them.
func (c claimTest) purge() jetstream.JetStream {
	c.t.Helper()
	nc, err := nats.Connect(c.cfg.NATS.URLs[0], nats.Timeout(testLimit))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testLimit))
	if err != nil {
		c.t.Fatal(err)
	}
	stream, err := js.Stream(c.t.Context(), "KUBERELAY")
	if err != nil {
		c.t.Fatal(err)
	}
	if err := stream.Purge(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return js
}

// TestALostClaimKeepsWhatItReplaced verifies that a claim that is published again names the cluster
// that this cluster replaced. Otherwise, KUBERELAY_CLUSTER_REPLACES counts as a setting that matches
// nothing.
func TestALostClaimKeepsWhatItReplaced(t *testing.T) {
	bus := onNATS(t)
	var c *claimant
	for _, of := range []struct{ uid, replaces string }{{"uid-0", ""}, {"uid-1", "uid-0"}} {
		var err error
		if c, err = bus.open(of.uid, of.replaces); err == nil {
			err = c.settle()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	bus.purge()
	if err := c.claim.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.last(); got.Replaces != "uid-0" || c.claim.ReplacesNobody() {
		t.Errorf("after a loss, the bus has the claim %+v", got)
	}
}

// TestALostClaimIsRenewedOnKafka verifies that a renewal publishes the claim again after the topic
// was deleted.
func TestALostClaimIsRenewedOnKafka(t *testing.T) {
	bus := onKafka(t)
	c := bus.settled("uid-1", "")
	before := c.bus.PossibleLosses()
	client := kafkabrokertest.Client(t, bus.cfg.Kafka.Brokers...)
	if _, err := client.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{bus.cfg.Kafka.Topic}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for c.bus.PossibleLosses() == before || c.bus.Ready() != nil { // the bus may be unavailable for less than the poll interval
		select {
		case <-ctx.Done():
			t.Fatalf("there is no new topic; Ready says %v", c.bus.Ready())
		case <-poll.C:
		}
	}
	if got := c.last(); !reflect.DeepEqual(got, event.Claim{}) {
		t.Fatalf("the claim was not lost: %+v", got)
	}
	if err := c.claim.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := bus.claimsOnKafka(); len(got) != 1 || got[0] != "uid-1" {
		t.Errorf("the topic has the claims %q", got)
	}
}

// TestAnUnrecordedClaimIsFoundOnKafka verifies that a takeover finds a claim that is missing from
// the checkpoint topic, for example because the writer was killed before it recorded the claim.
func TestAnUnrecordedClaimIsFoundOnKafka(t *testing.T) {
	bus := onKafka(t)
	if err := bus.settled("uid-1", "").bus.Close(); err != nil {
		t.Fatal(err)
	}
	checkpoints := bus.cfg.Kafka.Topic + ".checkpoint"
	client := kafkabrokertest.Client(t, bus.cfg.Kafka.Brokers...)
	if _, err := client.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{checkpoints}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	for gone := false; !gone; {
		found, err := client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{checkpoints}})
		if err != nil {
			t.Fatal(err)
		}
		gone = errors.Is(found.Topics[0].Error, kafkago.UnknownTopicOrPartition)
	}
	if _, err := bus.settle("uid-2", ""); !config.IsError(err) {
		t.Errorf("another cluster got %v", err)
	}
	bus.settled("uid-1", "")
	if got := bus.claimsOnKafka(); len(got) != 1 {
		t.Errorf("the topic has the claims %q", got)
	}
}

// TestAClaimAmongTopicsOfResources verifies claims with a topic template, where the claim has its
// own topic.
func TestAClaimAmongTopicsOfResources(t *testing.T) {
	bus := onKafka(t)
	bus.cfg.Kafka.Topic += ".{group}.{resource}"
	bus.settled("uid-1", "")
	bus.settled("uid-1", "")
	if _, err := bus.settle("uid-2", ""); !config.IsError(err) {
		t.Errorf("another cluster got %v", err)
	}
	if got := bus.claimsOnKafka(); len(got) != 1 || got[0] != "uid-1" {
		t.Errorf("the topics have the claims %q", got)
	}
}
