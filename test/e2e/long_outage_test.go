//go:build outage

package e2e

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var (
	outageFor     = flag.Duration("outage.for", time.Minute, "how long the bus is down")
	outageObjects = flag.Int("outage.objects", 5000, "objects that change meanwhile")
)

// TestLongOutage measures the memory that a long outage of the bus costs while objects change.
// Afterward, the forwarder must publish the last state of each object once. "make outage" runs the
// test.
func TestLongOutage(t *testing.T) {
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "configmaps", "LOG_LEVEL": "error"})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	name := func(n int) string { return fmt.Sprintf("c%05d", n) }
	value := strings.Repeat("x", 2000)
	inParallel(t, *outageObjects, func(n int) { u.create(configMaps, namespace, configMap(name(n), value)) })
	f.start().idle()
	change := func(round int) {
		inParallel(t, *outageObjects, func(n int) { u.label(configMaps, namespace, name(n), fmt.Sprint(round)) })
	}
	change(0) // does the later work once before the first measurement of the memory
	f.idle()
	sub := subscribe(t, bus.URL)
	sub.end()
	published, before := sub.total(), f.resident()
	most := before

	bus.Kill()
	rounds := 1
	for end := time.Now().Add(*outageFor); time.Now().Before(end); rounds++ {
		change(rounds)
		most = max(most, f.resident())
	}
	bus.Start()
	f.idle()
	sub.end()
	after := f.resident()
	events := sub.total() - published
	fmt.Printf("bus down for %s, %d objects changed %d times each: resident memory %.1f MB before, at most %.1f MB during (%+.1f %%), %.1f MB after; %d events caught up\n",
		*outageFor, *outageObjects, rounds-1, mb(before), mb(most), 100*(float64(most)/float64(before)-1), mb(after), events)
	if most > before*11/10 {
		t.Errorf("memory grew from %.1f MB to %.1f MB while the bus was down, want at most 10 %% more", mb(before), mb(most))
	}
	if events < *outageObjects || events > *outageObjects*11/10 {
		t.Errorf("%d events for %d objects, want each object's last state once", events, *outageObjects)
	}
	checkReplicaOf(t, u, sub, configMaps)
	sub.checkOrder()
}
