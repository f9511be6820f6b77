package torture

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// The actions that concern the current leader
const (
	killLeader  verb = "kill the leader"
	pauseLeader verb = "pause the leader" // SIGSTOP
	awaitLeader verb = "await another leader"
	wakeLeader  verb = "resume the leader"    // SIGCONT
	handOver    verb = "terminate the leader" // SIGTERM; the forwarder is restarted
)

const theLeader = "leader"

// leaderKinds are the faults of forwarders with leader election.
var leaderKinds = []kind{
	{
		name: "leader killed", uses: []string{theLeader},
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: killLeader}, act{do: awaitLeader}, act{do: killLeader})
		},
	},
	{
		name: "leader paused beyond its lease", uses: []string{theLeader}, felt: "lease lost",
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: pauseLeader}, act{do: awaitLeader}, act{do: wakeLeader})
		},
	},
	{
		name: "leader asked to stop", uses: []string{theLeader}, felt: "stopped leading",
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: handOver}, act{do: awaitLeader}, act{do: handOver})
		},
	},
}

// The lease is short, so that it expires soon after a fault.
const (
	leaseDuration = 3 * time.Second
	leaseDeadline = 1500 * time.Millisecond
	leaseRetry    = 300 * time.Millisecond
)

// electing has the variables of forwarders with leader election.
func (w *world) electing() map[string]string {
	if w.settings.replicas == 0 {
		return nil
	}
	return map[string]string{
		"LEADER_ELECTION": "true", "LEASE_NAME": w.user.home + "lease", "LEASE_NAMESPACE": "default",
		"LEASE_DURATION": leaseDuration.String(), "LEASE_RENEW_DEADLINE": leaseDeadline.String(), "LEASE_RETRY_PERIOD": leaseRetry.String(),
	}
}

// executeOnLeader performs an action on the current leader. If another fault left no leader, it does
// nothing.
func (w *world) executeOnLeader(ctx context.Context, a act) error {
	if a.do == wakeLeader {
		for _, n := range w.nodes {
			n.Signal(syscall.SIGCONT)
		}
		w.paused = nil
		return nil
	}
	leader := w.awaitLeader(ctx)
	if leader == nil {
		return nil
	}
	switch a.do {
	case killLeader:
		leader.Signal(syscall.SIGKILL)
	case pauseLeader:
		w.paused = leader
		leader.Signal(syscall.SIGSTOP)
	case handOver:
		return leader.terminate(ctx)
	}
	return nil
}

// awaitLeader waits for a leader that isn't frozen. It returns nil if no forwarder leads for longer
// than an election takes.
func (w *world) awaitLeader(ctx context.Context) (leader *node) {
	_ = poll.Until(ctx, leaseDuration+feltLimit, "one leads", func(ctx context.Context) error {
		for _, n := range w.nodes {
			asking, cancel := context.WithTimeout(ctx, time.Second)
			leads, err := n.Metric(asking, "kuberelay_leader")
			cancel()
			if err == nil && leads == 1 && n != w.paused {
				leader = n
				return nil
			}
		}
		return errors.New("none does")
	})
	return leader
}
