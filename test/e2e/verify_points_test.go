package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// never is a settle time that exceeds the time limit of every test.
const never = "--settle=1000h"

// verify runs "forwarder verify" and returns its report.
func (f *forwarder) verify(wantCode int, settle string) report.Report {
	f.t.Helper()
	code, stdout, stderr := f.run("verify", settle, "--output=json")
	var r report.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != wantCode {
		f.t.Fatalf("verify ended with %d, want %d: %v\n%s%s", code, wantCode, err, stdout, stderr)
	}
	return r
}

// awaitPoint waits until every partition has a consistency point at the given version or later.
func (b *anyBus) awaitPoint(version string) {
	b.t.Helper()
	poll.Try(b.t, "every partition has a consistency point of version "+version, func(context.Context) error {
		reached := map[int]bool{}
		for _, m := range b.all() {
			reached[m.Partition] = reached[m.Partition] || m.Kind() == "resolved" && number(m.Attributes["resourceversion"]) >= number(version)
		}
		for partition, ok := range reached {
			if !ok {
				return fmt.Errorf("partition %d has none", partition)
			}
		}
		if len(reached) == 0 { // if the bus has any events, the forwarder has written to every partition
			return errors.New("the bus has nothing")
		}
		return nil
	})
}

// TestVerifyAtPoints_Slow verifies that verify finds no difference while objects change continuously. It
// compares at consistency points, so it doesn't wait for the settle time.
func TestVerifyAtPoints_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		u := newUser(t, cp)
		namespace := controlplanetest.Namespace(t, cp)
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "50ms"})
		f.start()
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				bus.change(u, namespace, round, 10)
			}
		})
		defer working.Wait()
		defer cancel()
		last := ""
		for n := range 5 {
			bus.awaitPoint(u.create(configMaps, namespace, configMap(fmt.Sprint("before-", n), "1")).GetResourceVersion())
			r := f.verify(0, never)
			at := r.Resources[0]
			if at.Point == nil || at.NoPoint != "" || r.InMotion > 0 {
				t.Fatalf("got %+v", r)
			}
			if at.Point.ResourceVersion == last {
				t.Errorf("verify was at %s twice while objects changed", last)
			}
			last = at.Point.ResourceVersion
			t.Logf("at %s, %.1f s old, of %s: %d objects, %d of them looked at again", last, at.Point.Age, at.ResourceVersion, at.Objects, at.Settled)
		}
	})
}

// TestVerifyFindsAtPoints verifies that verify finds every kind of difference at a consistency
// point, without waiting for the settle time.
func TestVerifyFindsAtPoints(t *testing.T) {
	cp := cluster.ControlPlane(t)
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		u := newUser(t, cp)
		namespace := controlplanetest.Namespace(t, cp)
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "50ms"})
		f.start().idle()
		of := func(name string) string { return key("configmaps", namespace, name) }
		want := map[string]report.Kind{"deleted": report.Missing, "older": report.Stale, "gone": report.Extra, "other": report.Different}
		for name := range want {
			u.create(configMaps, namespace, configMap(name, "1"))
			bus.awaitKinds(of(name), "created")
		}
		u.label(configMaps, namespace, "older", "yes")
		bus.awaitKinds(of("older"), "created updated")
		u.delete(configMaps, namespace, "gone")
		bus.awaitKinds(of("gone"), "created deleted")
		genuine := bus.events()
		first := func(name string) (forgery, string) {
			return forgery{object: name}, genuine[of(name)][0].Attributes["uid"]
		}
		for name := range want {
			forged, uid := first(name)
			switch name {
			case "deleted":
				forged.change = map[string]string{"type": "io.kuberelay.object.deleted", "id": uid + ".deleted"}
			case "other":
				forged.data = "FORGED"
			}
			bus.forge(forged, genuine[of(name)][0])
		}
		bus.awaitPoint(u.create(configMaps, namespace, configMap("last", "1")).GetResourceVersion())

		r := f.verify(1, never)
		got := map[string]report.Kind{}
		for _, p := range r.Problems {
			if p.Kind == report.Misordered || p.Kind == report.Malformed {
				continue // forgeries
			}
			got[p.Name] = p.Kind
			if p.Point == "" {
				t.Errorf("%s %s was not found at a point: %s", p.Kind, p.Name, p.Detail)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestVerifyWithoutPoints_Slow verifies that verify waits for the settle time in two cases: the bus has
// no consistency point, or the API server no longer has the version of the last point. After the
// settle time, verify also finds the objects that the forwarder didn't publish after its last
// point.
func TestVerifyWithoutPoints_Slow(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{})
	const namespace = "default"
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		u := newUser(t, cp)
		set := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "0"}
		name := func(n string) string { return bus.name() + "-" + n }
		stuck := func(n string, has bool, noPoint string) {
			t.Helper()
			u.create(configMaps, namespace, configMap(name(n), "1"))
			r := bus.forwarder(cp.Kubeconfig(), set).verify(1, "--settle=1s")
			if p := r.Problems[len(r.Problems)-1]; p.Kind != report.Missing || p.Name != name(n) || p.Point != "" {
				t.Errorf("got %+v, want that %s is missing", r.Problems, name(n))
			}
			if at := r.Resources[0]; (at.Point != nil) != has || !strings.HasPrefix(at.NoPoint, noPoint) || at.Settled != len(r.Problems) {
				t.Errorf("got %+v, want %q", at, noPoint)
			}
		}
		f := bus.forwarder(cp.Kubeconfig(), set)
		f.start().idle()
		f.kill()
		stuck("a", false, "the bus has no consistency point of it")

		set["RESOLVED_INTERVAL"] = "50ms"
		f = bus.forwarder(cp.Kubeconfig(), set)
		f.start()
		bus.awaitPoint(u.create(configMaps, namespace, configMap(name("b"), "1")).GetResourceVersion())
		f.kill()
		stuck("c", true, "")

		if err := cp.CompactEtcd(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cp.KillAPIServer(); err != nil { // the API server's cache still has the versions that etcd compacted
			t.Fatal(err)
		}
		if err := cp.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		stuck("d", false, "the API server no longer has the consistency point at ")
	})
}

// name returns the last part of the test's name.
func (b *anyBus) name() string { return b.t.Name()[strings.LastIndexByte(b.t.Name(), '/')+1:] }
