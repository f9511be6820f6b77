package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestTheBusIsDownUnderChange_Slow stops the bus, changes objects many times, deletes and recreates some,
// and starts the bus again. The forwarder must publish the last state of every object once.
func TestTheBusIsDownUnderChange_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	const objects = 50
	for n := range objects {
		u.create(configMaps, namespace, configMap(fmt.Sprintf("c%d", n), "1"))
	}
	f.start().idle()
	sub := subscribe(t, bus.URL)
	sub.end()

	there := f.metric("kuberelay_informer_objects")
	for name, fault := range map[string]struct{ begin, end func() }{
		"killed": {bus.Kill, bus.Start},
		"frozen": {bus.Freeze, bus.Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, cp)
			before := sub.total()
			fault.begin()
			for round := range 10 {
				for n := range objects {
					u.label(configMaps, namespace, fmt.Sprintf("c%d", n), fmt.Sprintf("%s-%d", name, round))
				}
			}
			u.delete(configMaps, namespace, "c0")
			u.create(configMaps, namespace, configMap("c0", "again"))
			u.create(configMaps, namespace, configMap("passing", "1"))
			u.delete(configMaps, namespace, "passing")
			u.create(configMaps, namespace, configMap("last-"+name, "1"))
			there++
			poll.Try(t, "the forwarder has seen the last change", func(ctx context.Context) error {
				n, err := f.Metric(ctx, "kuberelay_informer_objects")
				if err == nil && n != there {
					err = fmt.Errorf("it has %v objects, want %v", n, there)
				}
				return err
			})
			fault.end()
			f.idle()
			sub.end()
			checkReplicaIn(t, u, sub, configMaps, namespace)
			sub.checkOrder()
			// The forwarder may publish a few states before it notices the outage, and a few may be in flight
			// then. Together these must be fewer than one in ten.
			if got := sub.total() - before; got > 3*objects {
				t.Errorf("%d messages for %d objects that changed 10 times", got, objects)
			}
			if kinds := sub.kinds(subject(configMaps, namespace, "passing")); kinds != "" && !strings.HasSuffix(kinds, "created deleted") {
				t.Errorf("the object that existed briefly has %q", kinds)
			}
		})
	}
}

// TestABusThatLostItsStream verifies that the forwarder rewrites a bus that lost all its data. It
// does so as soon as the bus is back, without waiting for the next refresh of the checkpoint.
func TestABusThatLostItsStream(t *testing.T) {
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "configmaps"})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	for n := range 20 {
		u.create(configMaps, namespace, configMap(fmt.Sprintf("c%d", n), "1"))
	}
	f.start().idle()
	bus.Kill()
	bus.Forget()
	bus.Start()
	sub := subscribe(t, bus.URL)
	checkReplicaOf(t, u, sub, configMaps)
	sub.awaitSnapshots(configMaps)
	f.kill()
	u.create(configMaps, namespace, configMap("late", "1"))
	f.start().idle()
	sub.awaitKinds(subject(configMaps, namespace, "late"), "created")
	sub.awaitSnapshots(configMaps)
	f.stop()
}

// TestDrainPublishesKeysInBackoff stops a forwarder shortly after the return of its bus. The
// forwarder must publish a change that waits for its retry.
func TestDrainPublishesKeysInBackoff(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u) // only the test makes an object dirty
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES": "configmaps", "NAMESPACES": namespace, "RETRY_MAX_DELAY": "1h", "RETRY_BASE_DELAY": "1h",
		"NATS_ACK_TIMEOUT": "1m", // no acknowledgement is so slow that it causes a retry
	})
	f.start().idle()
	bus.Kill()
	u.create(configMaps, namespace, configMap("late", "1"))
	poll.Try(t, "the change is known", func(ctx context.Context) error {
		n, err := f.Metric(ctx, "kuberelay_dirty_objects")
		if err == nil && n == 0 {
			err = errors.New("nothing is dirty")
		}
		return err
	})
	bus.Start()
	f.ready()
	f.stop()
	sub := subscribe(t, bus.URL)
	sub.awaitKinds(subject(configMaps, namespace, "late"), "created")
}

// TestCreatedAndDeletedDuringOutage verifies that the forwarder keeps no record of an object that
// exists only during an outage. No subscriber has seen the object.
func TestCreatedAndDeletedDuringOutage(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	u.create(configMaps, namespace, configMap("there", "1"))
	f.start().idle()
	bus.Kill()
	f.awaitReason("bus")
	for n := range 100 {
		name := fmt.Sprint("passing-", n)
		u.create(configMaps, namespace, configMap(name, "1"))
		u.delete(configMaps, namespace, name)
		u.create(configMaps, namespace, configMap("again", "1"))
		u.delete(configMaps, namespace, "again")
	}
	u.delete(configMaps, namespace, "there")
	poll.Try(t, "only keys that the bus must learn about are kept", func(ctx context.Context) error {
		n, err := f.Metric(ctx, "kuberelay_dirty_objects")
		if err == nil && n != 1 {
			err = fmt.Errorf("%v objects are dirty", n)
		}
		return err
	})
	bus.Start()
	sub := subscribe(t, bus.URL)
	sub.awaitKinds(subject(configMaps, namespace, "there"), "snapshot deleted")
	f.idle()
	sub.end()
	checkReplicaIn(t, u, sub, configMaps, namespace)
	sub.checkOrder()
	f.stop()
}

// TestTheAPIServerIsRestartedUnderChange_Slow kills the API server twice. The second time, it also
// compacts etcd, so that the watch can't resume.
func TestTheAPIServerIsRestartedUnderChange_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := controlplanetest.New(t, controlplane.Options{})
	u := newUser(t, cp)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps"})
	for n := range 20 {
		u.create(configMaps, "default", configMap(fmt.Sprintf("c%d", n), "1"))
	}
	f.start().idle()
	sub := subscribe(t, bus.URL)
	for round, compact := range []bool{false, true} {
		for n := round; n < 20; n++ { // the test has deleted the earlier ones
			u.label(configMaps, "default", fmt.Sprintf("c%d", n), fmt.Sprint(round))
		}
		if err := cp.KillAPIServer(); err != nil {
			t.Fatal(err)
		}
		if err := cp.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		u.delete(configMaps, "default", fmt.Sprintf("c%d", round))
		u.create(configMaps, "default", configMap(fmt.Sprintf("new%d", round), "1"))
		if compact {
			if err := cp.CompactEtcd(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		sub.awaitKinds(subject(configMaps, "default", fmt.Sprintf("new%d", round)), "created")
	}
	f.idle()
	sub.end()
	sub.checkOrder()
	checkReplicaOf(t, u, sub, configMaps)
}
