package bus

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// claimFormat publishes the last claim again, with member in place of its format, as a release with
// another format would.
func (c *claimant) claimFormat(member string) {
	c.t.Helper()
	next := c.last()
	next.Claimed = time.Now() // the event ID is derived from it
	m, err := event.Builder{Cluster: c.name}.ClusterClaimed(next)
	if err != nil {
		c.t.Fatal(err)
	}
	present := fmt.Appendf(nil, `"format":%d,`, event.Format)
	if !bytes.Contains(m.Data, present) {
		c.t.Fatalf("the claim has no format: %s", m.Data)
	}
	m.Data = bytes.Replace(m.Data, present, []byte(member), 1)
	if err := publish.Put(c.t.Context(), c.bus, m); err != nil {
		c.t.Fatal(err)
	}
}

// TestALaterFormat verifies that a forwarder neither starts nor continues on a bus where a later
// release wrote a claim in an unknown format. This holds whether or not the forwarder knows the UID
// of its cluster.
func TestALaterFormat(t *testing.T) {
	for _, uid := range []string{"uid-1", ""} {
		t.Run("uid="+uid, func(t *testing.T) {
			onBoth(t, func(t *testing.T, bus claimTest) {
				running := bus.settled("uid-1", "")
				running.claimFormat(fmt.Sprintf(`"format":%d,`, event.Format+1))
				want := fmt.Sprintf("in format %d, and this release reads formats up to %d", event.Format+1, event.Format)
				if err := running.claim.renew(t.Context()); !config.IsError(err) || !errors.Is(err, publish.ErrGone) || !strings.Contains(err.Error(), want) {
					t.Errorf("the running forwarder got %v", err)
				}
				if err := running.send("a"); !errors.Is(err, publish.ErrNotSent) {
					t.Errorf("publishing returned %v", err)
				}
				_, err := bus.settle(uid, "")
				if !config.IsError(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "KUBERELAY_KAFKA_TOPIC") {
					t.Errorf("a start returned %v", err)
				}
			})
		})
	}
}

// TestAnEarlierFormat verifies that a forwarder takes over the bus of a release whose claims have
// no format. The first start claims the name again, and a restart does not.
func TestAnEarlierFormat(t *testing.T) {
	onBoth(t, func(t *testing.T, bus claimTest) {
		earlier := bus.settled("uid-1", "")
		earlier.claimFormat("")
		if got := earlier.last(); got.Format != 0 || got.UID != "uid-1" {
			t.Fatalf("the bus says %+v", got)
		}
		first := bus.settled("uid-1", "").last()
		if first.Format != event.Format {
			t.Errorf("the bus says %+v", first)
		}
		if again := bus.settled("uid-1", "").last(); again.Position != first.Position {
			t.Errorf("a restart claimed the name again: %+v", again)
		}
	})
}
