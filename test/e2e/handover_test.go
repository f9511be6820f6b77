//go:build handover

package e2e

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var (
	handovers = flag.Int("handover.rounds", 20, "how often the leader is asked to end")
	kills     = flag.Int("handover.kills", 5, "how often the leader is killed")
)

// TestHandover measures how long publishing stops when a leader shuts down and when it is killed,
// with the default durations of the election. "make handover" runs it.
func TestHandover(t *testing.T) {
	lease := map[string]string{"LEASE_DURATION": "", "LEASE_RENEW_DEADLINE": "", "LEASE_RETRY_PERIOD": "", "LOG_LEVEL": "info"}
	onEachBus(t, lease, func(r *replicas) {
		leader, other, endLoad := r.begin()
		r.leads() // wait until everything that the leader needs exists
		var drained, next, killed []time.Duration
		for n := range *handovers + *kills {
			f, probe := r.all[leader], fmt.Sprintf("probe%d", n)
			began := time.Now()
			if n < *handovers {
				f.stop()
				drained = append(drained, time.Since(began))
				began = time.Now()
			} else {
				f.kill()
			}
			r.user.create(configMaps, r.namespace, configMap(probe, "1"))
			r.await(probe, "created")
			if n < *handovers {
				next = append(next, time.Since(began))
			} else {
				killed = append(killed, time.Since(began))
			}
			f.start().ready()
			leader, other = other, leader
			r.led(leader)
		}
		endLoad()
		r.settled()
		r.t.Logf("%d times SIGTERM: ended within %s", len(drained), spread(drained))
		r.t.Logf("%d times SIGTERM: from the end of the leader to the first event of the next leader: %s", len(next), spread(next))
		r.t.Logf("%d times kill -9, with a lease of 15 s: from the kill to the first event of the next leader: %s", len(killed), spread(killed))
	})
}

// leads waits until the leader has published an object.
func (r *replicas) leads() {
	r.t.Helper()
	r.user.create(configMaps, r.namespace, configMap("first", "1"))
	r.await("first", "created")
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s minimum, %s median, %s maximum", round(all[0]), round(all[len(all)/2]), round(all[len(all)-1]))
}
