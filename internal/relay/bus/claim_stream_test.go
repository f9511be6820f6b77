package bus

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestAClaimNamesItsStream verifies that a claim names its stream, so that a subscriber notices a
// new stream. A start replaces a claim of an earlier release, which names no stream, and a restart
// claims nothing.
func TestAClaimNamesItsStream(t *testing.T) {
	bus := onNATS(t)
	c, err := bus.open("uid-1", "")
	if err != nil {
		t.Fatal(err)
	}
	older, err := event.Builder{Cluster: "prod"}.ClusterClaimed(event.Claim{UID: "uid-1", Replaces: "uid-0", Epoch: 7, Claimed: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if err := publish.Put(t.Context(), c.bus, older); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(bus.cfg.NATS.URLs[0], nats.Timeout(testLimit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testLimit))
	if err != nil {
		t.Fatal(err)
	}
	check := func(claim event.Claim) {
		t.Helper()
		stream, err := js.Stream(t.Context(), "KUBERELAY")
		if err != nil {
			t.Fatal(err)
		}
		if want := stream.CachedInfo().Created.UTC().Format(time.RFC3339Nano); claim.Stream != want || claim.UID != "uid-1" || claim.Epoch != 7 {
			t.Errorf("the claim is %+v, want epoch 7 and stream %s", claim, want)
		}
	}
	if err := c.settle(); err != nil {
		t.Fatal(err)
	}
	first := c.last()
	if check(first); first.Replaces != "uid-0" {
		t.Errorf("the claim replaces %q", first.Replaces)
	}
	if again := bus.settled("uid-1", "").last(); again.Position != first.Position {
		t.Errorf("a restart claimed the name again: %+v, after %+v", again, first)
	}

	before := c.bus.PossibleLosses()
	if err := js.DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for c.bus.PossibleLosses() == before || c.bus.Ready() != nil {
		select {
		case <-ctx.Done():
			t.Fatalf("there is no new stream; Ready says %v", c.bus.Ready())
		case <-poll.C:
		}
	}
	if err := c.bus.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); err != nil {
		t.Fatal(err)
	}
	second := c.last()
	if check(second); second.Stream == first.Stream {
		t.Errorf("the new stream is %s, as the old one", second.Stream)
	}
}
