package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestClustersShareABus_Slow verifies that two clusters can share one bus. Both change objects with the
// same names at the same time, and the test kills the forwarder of one cluster. In the end, the bus
// agrees with both clusters. A forwarder purges only the events of its own cluster.
func TestClustersShareABus_Slow(t *testing.T) {
	management, workload := newMember(t, "management"), newMember(t, "workload-1")
	onFleets(t, "fleet", func(t *testing.T, bus fleetBus) {
		management, workload := management.in(t), workload.in(t)
		stays := bus.forwarder(t, management, map[string]string{"CHECKPOINT_REFRESH": "1s"}).start()
		dies := bus.forwarder(t, workload, nil).start()
		stays.idle()
		dies.idle()

		const changes = 280
		half := make(chan struct{})
		all, ctx := errgroup.WithContext(t.Context())
		for _, m := range []*member{management, workload} {
			all.Go(func() error {
				for n := range changes {
					if m == workload && n == changes/2 {
						close(half)
					}
					if err := m.change(ctx, n); err != nil {
						return fmt.Errorf("%s: %w", m.name, err)
					}
				}
				return nil
			})
		}
		select {
		case <-half:
		case <-ctx.Done():
			t.Fatal(all.Wait())
		}
		dies.kill()
		dies.start()
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		stays.idle()
		dies.idle()
		bus.check(t, management, stays)
		bus.check(t, workload, dies)
		for _, m := range []*member{management, workload} {
			if got := bus.claims(m.name); !slices.Equal(got, []string{m.uid}) {
				t.Errorf("the claims of %s are %q, want one of %s", m.name, got, m.uid)
			}
		}

		// Both clusters delete an object with the same name. Only the cluster with the expired
		// retention purges its delete. One process publishes the delete and another purges it,
		// because a forwarder on Kafka doesn't purge its own newest event in a partition.
		for _, m := range []*member{management, workload} {
			m.create(configMaps, shared, configMap("doomed", m.name))
		}
		for _, m := range []*member{management, workload} {
			bus.awaitKinds(t, m.name, "doomed", "created")
		}
		stays.stop()
		for _, m := range []*member{management, workload} {
			m.delete(configMaps, shared, "doomed")
		}
		stays.start()
		for _, m := range []*member{management, workload} {
			bus.awaitKinds(t, m.name, "doomed", "created deleted")
		}
		stays.stop()
		purges := bus.forwarder(t, management, map[string]string{"DELETE_RETENTION": "1s"}).start()
		poll.Try(t, "the delete is purged", func(context.Context) error { return bus.purged(management.name, "doomed") })
		dies.idle()
		if err := bus.purged(workload.name, "doomed"); err == nil {
			t.Error("the other cluster's delete is purged, too")
		}
		if events := bus.objects(workload.name)["doomed"]; len(events) != 2 || events[1].kind != "deleted" {
			t.Errorf("the other cluster's object has the events %+v", events)
		}
		purges.idle()
		bus.check(t, workload, dies)
		purges.stop()
		dies.stop()
	})
}

// TestTwoClustersWithOneName_Slow verifies that the bus refuses a second cluster with the same name, and
// that the first keeps running. A rebuilt cluster takes over the name when its configuration says
// so, and the forwarder of the first cluster then ends.
func TestTwoClustersWithOneName_Slow(t *testing.T) {
	old, anew := newMember(t, "prod"), newMember(t, "prod")
	onFleets(t, "namesakes", func(t *testing.T, bus fleetBus) {
		old, anew := old.in(t), anew.in(t)
		for _, m := range []*member{old, anew} {
			m.create(configMaps, shared, configMap("both", m.uid))
		}
		old.create(configMaps, shared, configMap("only", "1"))
		first := bus.forwarder(t, old, map[string]string{"CHECKPOINT_REFRESH": "1s"}).start()
		first.idle()
		bus.awaitSnapshot(t, "prod")
		before := bus.all()

		second := bus.forwarder(t, anew, nil)
		code, _, stderr := second.run("run")
		if code != 2 {
			t.Errorf("the second cluster's forwarder ended with %d", code)
		}
		_, report, _ := strings.Cut(stderr, "forwarder: ")
		for _, part := range []string{"prod", old.uid, anew.uid, "KUBERELAY_CLUSTER_NAME", "KUBERELAY_CLUSTER_REPLACES=" + old.uid} {
			if !strings.Contains(report, part) {
				t.Errorf("the error does not name %s:\n%s", part, report)
			}
		}
		if after := bus.all(); !maps.Equal(before, after) {
			t.Errorf("the bus had %v, and has %v after a forwarder was refused", before, after)
		}
		old.label(configMaps, shared, "both", "later")
		first.idle()
		bus.check(t, old, first)

		if err := old.cp.StopAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := old.cp.StartAPIServer(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		third := bus.forwarder(t, anew, map[string]string{"CLUSTER_REPLACES": old.uid}).start()
		third.idle()
		first.endsReplaced()
		poll.Try(t, "objects that the new cluster doesn't have are deleted", func(context.Context) error {
			if events := bus.objects("prod")["only"]; events[len(events)-1].kind != "deleted" {
				return errors.New("the object is not deleted on the bus")
			}
			return nil
		})
		third.idle()
		bus.check(t, anew, third)
		if got := bus.objects("prod")["both"]; got[len(got)-1].uid == got[0].uid || got[len(got)-1].sequence < "0001." {
			t.Errorf("the last event is of uid %s, with the sequence %s", got[len(got)-1].uid, got[len(got)-1].sequence)
		}
		if got := bus.claims("prod"); !slices.Equal(got, []string{old.uid, anew.uid}) {
			t.Errorf("the claims are %q", got)
		}
		third.kill()
		before = bus.claimsAndObjects()
		third.start().idle()
		third.stop()
		if after := bus.claimsAndObjects(); !maps.Equal(before, after) {
			t.Errorf("the bus had %v, and has %v after a restart", before, after)
		}
	})
}

// endsReplaced waits until the forwarder has ended because another cluster owns its name. On NATS,
// the forwarder reads the new owner from the claim. On Kafka, the brokers fence it.
func (f *forwarder) endsReplaced() {
	f.t.Helper()
	select {
	case <-f.Ended():
	case <-time.After(limit):
		f.t.Fatal("the forwarder of the replaced cluster is still running")
	}
	_, err := f.Failure()
	log := f.LogTail(10)
	switch {
	case err == nil:
		f.t.Error("the forwarder of the replaced cluster ended without an error")
	case strings.Contains(log, "another writer took over"):
	case !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(log, "belongs to another cluster"):
		f.t.Errorf("the forwarder of the replaced cluster ended with %v", err)
	}
}
