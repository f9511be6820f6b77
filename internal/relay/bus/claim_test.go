package bus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestAClusterClaimsItsName verifies that the first cluster to claim a name owns it. Another
// cluster is rejected until its configuration names the first one as the cluster to replace. After
// that, the first cluster is rejected.
func TestAClusterClaimsItsName(t *testing.T) {
	onBoth(t, func(t *testing.T, bus claimTest) {
		first := bus.settled("uid-1", "")
		claim := first.last()
		if claim.UID != "uid-1" || claim.Position == 0 || first.epoch != 0 {
			t.Fatalf("the bus says %+v, and the epoch is %d", claim, first.epoch)
		}
		if err := first.send("a"); err != nil {
			t.Fatal(err)
		}
		first = bus.settled("uid-1", "")
		if again := first.last(); again.Position != claim.Position {
			t.Errorf("a restart claimed the name again: %+v, after %+v", again, claim)
		}

		_, err := bus.settle("uid-2", "uid-3")
		if !config.IsError(err) {
			t.Fatalf("another cluster got %v", err)
		}
		for _, part := range []string{"prod", "uid-1", "uid-2", "KUBERELAY_CLUSTER_NAME", "KUBERELAY_CLUSTER_REPLACES=uid-1"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not name %s: %v", part, err)
			}
		}
		if err := first.send("b"); err != nil {
			t.Errorf("after another cluster was rejected: %v", err)
		}

		second := bus.settled("uid-2", "uid-1")
		if got := second.last(); got.UID != "uid-2" || got.Epoch != 1 || second.epoch != 1 {
			t.Errorf("the bus says %+v, and the epoch is %d", got, second.epoch)
		}
		position := second.last().Position
		if _, err := bus.settle("uid-1", ""); !config.IsError(err) {
			t.Errorf("the cluster that was replaced got %v", err)
		}
		second = bus.settled("uid-2", "uid-1") // KUBERELAY_CLUSTER_REPLACES may stay set
		if got := second.last(); got.Position != position || second.epoch != 1 {
			t.Errorf("a restart claimed the name again: %+v, and the epoch is %d", got, second.epoch)
		}
		if back := bus.settled("uid-1", "uid-2"); back.epoch != 2 {
			t.Errorf("after two replacements the epoch is %d", back.epoch)
		}
	})
}

// TestAReplacedClusterEnds verifies that a forwarder whose cluster is replaced while it runs
// publishes nothing more, and that its bus is gone. NATS would not reject its messages.
func TestAReplacedClusterEnds(t *testing.T) {
	bus := onNATS(t)
	old := bus.settled("uid-1", "")
	if err := errors.Join(old.claim.renew(t.Context()), old.bus.Ready()); err != nil {
		t.Fatal(err)
	}
	bus.settled("uid-2", "uid-1")
	if err := old.bus.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); !config.IsError(err) {
		t.Errorf("loading the checkpoint returned %v", err)
	}
	if err := old.bus.Ready(); !config.IsError(err) || !errors.Is(err, publish.ErrGone) {
		t.Errorf("Ready says %v", err)
	}
	if err := old.send("a"); !errors.Is(err, publish.ErrNotSent) {
		t.Errorf("publishing returned %v", err)
	}
}

// TestABusWithoutAClaim verifies that the first start publishes a claim if the bus has none, as
// after an earlier release or a loss. The claim has a new epoch and names a replaced cluster only if
// the settings name that cluster and the bus has objects.
func TestABusWithoutAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		replaces string
		want     uint16
	}{"anew": {"", 0}, "replacing": {"uid-0", 1}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, bus claimTest) {
				older, err := bus.open("", "")
				if err != nil {
					t.Fatal(err)
				}
				if err := older.send("a"); err != nil {
					t.Fatal(err)
				}
				if got := bus.settled("uid-1", c.replaces); got.epoch != c.want || got.last().UID != "uid-1" || got.last().Replaces != c.replaces || got.claim.ReplacesNobody() {
					t.Errorf("the bus says %+v, and the epoch is %d, want %d", got.last(), got.epoch, c.want)
				}
			})
		})
	}
	if got := onNATS(t).settled("uid-1", "uid-0"); got.epoch != 0 || !got.claim.ReplacesNobody() {
		t.Errorf("an empty bus says %+v, and the epoch is %d", got.last(), got.epoch)
	}
}

// TestAClusterWithoutUID verifies that a cluster whose UID can't be read uses a name without a
// check, but can't replace another cluster.
func TestAClusterWithoutUID(t *testing.T) {
	onBoth(t, func(t *testing.T, bus claimTest) {
		bus.settled("uid-1", "")
		bus.settled("uid-2", "uid-1")
		nameless := bus.settled("", "")
		if got := nameless.last(); got.UID != "uid-2" || nameless.epoch != 1 {
			t.Errorf("the bus says %+v, and the epoch is %d", got, nameless.epoch)
		}
		if err := nameless.claim.renew(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := bus.settle("", "uid-2"); !config.IsError(err) || !strings.Contains(err.Error(), "kube-system") {
			t.Errorf("replacing a cluster returned %v", err)
		}
	})
}

// TestClustersClaimOneNameAtOnce verifies that at most one of several clusters that start with one
// name at the same moment obtains it.
func TestClustersClaimOneNameAtOnce(t *testing.T) {
	t.Run("nats", func(t *testing.T) {
		bus := onNATS(t)
		const clusters = 8
		var all [clusters]*claimant
		for n := range all {
			var err error
			if all[n], err = bus.open(fmt.Sprintf("uid-%d", n), ""); err != nil {
				t.Fatal(err)
			}
		}
		for n, err := range inParallel(clusters, func(n int) error { return all[n].settle() }) {
			switch is := all[0].last().UID == all[n].claim.uid; {
			case is && err != nil:
				t.Errorf("cluster %d owns the name on the bus, but got %v", n, err)
			case !is && !config.IsError(err):
				t.Errorf("cluster %d does not own the name, but got %v", n, err)
			}
		}
	})
	t.Run("kafka", func(t *testing.T) {
		bus := onKafka(t)
		const clusters = 3
		won := 0
		for n, err := range inParallel(clusters, func(n int) error {
			_, err := bus.settle(fmt.Sprintf("uid-%d", n), "")
			return err
		}) {
			switch {
			case err == nil:
				won++
			case !config.IsError(err) && !errors.Is(err, publish.ErrGone):
				t.Errorf("cluster %d got %v", n, err)
			}
		}
		if claims := bus.claimsOnKafka(); len(claims) != 1 || won > 1 {
			t.Errorf("the claims are %q, and %d clusters can publish; want one claim and at most one cluster", claims, won)
		}
	})
}

func inParallel(n int, do func(int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errs
}

// TestNoClaimOnStdout verifies that Acquire succeeds on standard output, which stores no claims.
func TestNoClaimOnStdout(t *testing.T) {
	c := claimTest{t: t, name: "prod"}
	c.cfg.Event.Sink = config.SinkStdout
	claimant, err := c.open("uid-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if epoch, err := claimant.bus.Acquire(t.Context(), ledger.New().NewTerm()); err != nil || epoch != 0 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
	if err := claimant.send("a"); err != nil {
		t.Error(err)
	}
}

// TestClustersKeepApart verifies that two clusters whose names share a prefix do not affect each
// other, even though their objects have the same names. Each cluster reads and purges only its own
// part of the bus, and continues to write while the other's forwarder starts.
func TestClustersKeepApart(t *testing.T) {
	onBoth(t, func(t *testing.T, bus claimTest) {
		other := bus
		other.name = "prod.eu"
		here, there := bus.settled("uid-1", ""), other.settled("uid-2", "")
		for _, name := range []string{"a", "b"} {
			for _, c := range []*claimant{here, there} {
				if err := c.send(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := here.remove("a"); err != nil {
			t.Fatal(err)
		}
		purge := func() error {
			return here.bus.Purge(t.Context(), configMapChange("prod", "a").Key, here.acked()["a"].Position)
		}
		err := purge()
		for n := 0; errors.Is(err, event.ErrNewest); n++ { // Kafka can't purge the newest event of a partition
			if err = here.send(fmt.Sprint("newer-", n)); err == nil {
				err = purge()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		check := func(c *claimant, want ...string) {
			t.Helper()
			var got []string
			for name, a := range c.acked() {
				if !strings.HasPrefix(name, "newer-") {
					got = append(got, a.UID)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s has %q, want %q", c.name, got, want)
			}
		}
		check(here, "b-of-prod")
		check(there, "a-of-prod.eu", "b-of-prod.eu")
		here = bus.settled("uid-1", "")
		check(here, "b-of-prod")
		if err := there.send("c"); err != nil {
			t.Error(err)
		}
		check(there, "a-of-prod.eu", "b-of-prod.eu", "c-of-prod.eu")
		if here.last().UID != "uid-1" || there.last().UID != "uid-2" {
			t.Errorf("the bus says %+v and %+v", here.last(), there.last())
		}
	})
}

// TestAForgedEpochInTheClaim verifies that neither a start nor a running forwarder adopts a claim's
// epoch that no restore can explain. Both publish the claim again without that epoch. Anyone who
// can write to the bus can publish a claim with the cluster's UID, and the claim's epoch applies to
// every resource.
func TestAForgedEpochInTheClaim(t *testing.T) {
	onBoth(t, func(t *testing.T, bus claimTest) {
		running := bus.settled("uid-1", "")
		forge := func(epoch uint16) {
			t.Helper()
			forged := running.last()
			forged.Epoch, forged.Claimed = epoch, time.Now() // the event ID is derived from it
			if err := running.claim.put(t.Context(), forged); err != nil || running.last().Epoch != epoch {
				t.Fatalf("the bus says %+v, %v", running.last(), err)
			}
		}
		forge(event.LastEpoch)
		if err := running.claim.renew(t.Context()); err != nil || running.last().Epoch != 0 {
			t.Errorf("renewed: the bus says %+v, %v", running.last(), err)
		}
		forge(event.MaxEpochJump + 1)
		if got := bus.settled("uid-1", ""); got.epoch != 0 || got.last().Epoch != 0 || got.last().UID != "uid-1" {
			t.Errorf("a start adopts epoch %d, and the bus says %+v", got.epoch, got.last())
		}
	})
}

// TestTheLastEpochOfAClaim verifies that a cluster that takes over a name in the last epoch stays
// in that epoch, because an epoch never wraps.
func TestTheLastEpochOfAClaim(t *testing.T) {
	loaded := ledger.New().NewTerm()
	for _, epoch := range []uint16{event.LastEpoch, 65535} {
		c := &claim{replaces: "uid-0"}
		if got, _ := c.first(event.Claim{UID: "uid-0", Epoch: epoch}, loaded); got != event.LastEpoch {
			t.Errorf("after epoch %d comes %d", epoch, got)
		}
	}
}
