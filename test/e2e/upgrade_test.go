package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kuberelay/kuberelay/test/harness"
)

// Without the flag, the earlier version is the current code with another version number.
var earlierBinary = flag.String("earlier", "", "forwarder of an earlier release, for TestUpgrade_Slow")

// TestUpgrade_Slow verifies an upgrade, a rollback and a second upgrade under load. Each time, one
// version takes over from the other. No event is missing, repeated or out of order.
func TestUpgrade_Slow(t *testing.T) {
	earlier := *earlierBinary
	if earlier == "" {
		earlier = filepath.Join(t.TempDir(), "forwarder")
		if err := harness.BuildVersion(t.Context(), "v0.0.0-earlier", earlier); err != nil {
			t.Fatal(err)
		}
	}
	onEachBus(t, nil, func(r *replicas) {
		old, later := r.all[0], r.all[1]
		old.UseBinary(earlier)
		leader, _, endLoad := r.begin()
		if leader != 0 {
			t.Fatal("the later version leads")
		}
		if _, was, _ := old.run("--version"); was != "" {
			if _, is, _ := later.run("--version"); is == was {
				t.Fatalf("both versions are %s", is)
			}
		}
		for n, to := range []int{1, 0, 1} { // the upgrade, the way back, and the upgrade again
			from, probe := 1-to, fmt.Sprintf("probe%d", n)
			r.user.create(configMaps, r.namespace, configMap(probe, "1"))
			r.await(probe, "created")
			r.all[from].stop()
			r.user.delete(configMaps, r.namespace, probe)
			r.led(to)
			r.await(probe, "created deleted")
			r.all[from].start().ready()
		}
		endLoad()
		r.settled()
	})
}
