package bus

import (
	"maps"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
)

// with returns the same bus for forwarders that select other namespaces.
func (c claimTest) with(namespaces ...string) claimTest {
	c.cfg.Watch.Namespaces = namespaces
	return c
}

// TestAClaimHasTheSettings verifies that a start with other settings claims the name again, once. A
// start without a change does not, and neither does a running forwarder that finds the settings of
// another forwarder.
func TestAClaimHasTheSettings(t *testing.T) {
	onBoth(t, func(t *testing.T, bus claimTest) {
		first := bus.with("a").settled("uid-1", "")
		claim := first.last()
		if !maps.Equal(claim.Settings, first.claim.settings) || len(claim.Settings) == 0 {
			t.Fatalf("the bus says %+v", claim)
		}
		again := bus.with("a").settled("uid-1", "")
		if got := again.last(); got.Position != claim.Position {
			t.Errorf("a restart without a change claimed the name again: %+v after %+v", got, claim)
		}
		other := bus.with("b").settled("uid-1", "")
		changed := other.last()
		if !maps.Equal(changed.Settings, other.claim.settings) || maps.Equal(changed.Settings, claim.Settings) || changed.Position <= claim.Position || changed.UID != "uid-1" || changed.Epoch != 0 {
			t.Errorf("with other settings, the bus says %+v after %+v", changed, claim)
		}
		if err := other.claim.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if bus.cfg.Event.Sink == "nats" { // on Kafka, the brokers now reject the other forwarders
			if err := again.claim.renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := other.last(); got.Position != changed.Position {
			t.Errorf("a forwarder that runs claimed the name again: %+v after %+v", got, changed)
		}
	})
}

// TestAForgottenName verifies that a forgotten name can be claimed again. The cluster that owned it
// stays in its epoch, and another cluster begins the next epoch.
func TestAForgottenName(t *testing.T) {
	for uid, epoch := range map[string]uint16{"uid-1": 0, "uid-2": 1} {
		t.Run(uid, func(t *testing.T) {
			onBoth(t, func(t *testing.T, bus claimTest) {
				old := bus.settled("uid-1", "")
				if err := old.send("a"); err != nil {
					t.Fatal(err)
				}
				forgotten := old.last()
				forgotten.Claimed = time.Now() // the event ID is derived from it
				forgotten.Forgotten = forgotten.Claimed
				if err := old.claim.put(t.Context(), forgotten); err != nil {
					t.Fatal(err)
				}
				if got := old.last(); got.Forgotten.IsZero() || got.UID != "uid-1" {
					t.Fatalf("the bus says %+v", got)
				}
				next := bus.settled(uid, "")
				got := next.last()
				if got.UID != uid || !got.Forgotten.IsZero() || got.Epoch != epoch || next.epoch != epoch || got.Settings == nil {
					t.Errorf("the bus says %+v, and the epoch is %d", got, next.epoch)
				}
				if uid == "uid-1" {
					return
				}
				if _, err := bus.settle("uid-3", ""); !config.IsError(err) {
					t.Errorf("a third cluster got %v", err)
				}
			})
		})
	}
}

// TestReplacesNobody verifies that KUBERELAY_CLUSTER_REPLACES may stay set after a replacement, but
// must name the cluster that was replaced.
func TestReplacesNobody(t *testing.T) {
	for name, c := range map[string]struct {
		claim *claim
		want  bool
	}{
		"not set":          {&claim{held: event.Claim{UID: "b", Replaces: "a"}}, false},
		"not claimed yet":  {&claim{replaces: "a"}, false},
		"replaced":         {&claim{replaces: "a", held: event.Claim{UID: "b", Replaces: "a"}}, false},
		"another":          {&claim{replaces: "x", held: event.Claim{UID: "b", Replaces: "a"}}, true},
		"there was nobody": {&claim{replaces: "a", held: event.Claim{UID: "b"}}, true},
	} {
		if got := c.claim.ReplacesNobody(); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
