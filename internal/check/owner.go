package check

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/status"
)

// ownerChecks returns the checks of the writers and of the running forwarder.
func ownerChecks() []Check {
	const group = "ownership"
	return []Check{
		{ID: "lease", Group: group, check: withServer(checkLease)},
		{ID: "cluster-name", Group: group, check: withBus(checkClusterName)},
		{ID: "another-writer", Group: group, check: checkAnotherWriter},
		{ID: "forwarder-status", Group: "forwarder", check: withForwarder(checkForwarder)},
		{ID: "forwarder-version", Group: "forwarder", check: withForwarder(checkForwarderVersion)},
	}
}

func checkLease(f *Facts) verdict {
	l := f.Lease
	name := l.Namespace + "/" + l.Name
	switch {
	case !f.Settings.Leader.Election:
		return skip("KUBERELAY_LEADER_ELECTION is false")
	case l.Err != nil:
		return fail("grant get, create, and update on leases, or set KUBERELAY_LEASE_NAMESPACE", "the Lease %s cannot be read: %v", name, l.Err)
	case f.Pre && l.Holder != "":
		return warn("if it is not the forwarder that you upgrade, set another KUBERELAY_LEASE_NAME", "%s already holds the Lease %s", l.Holder, name)
	case f.Pre:
		return pass("nobody holds the Lease %s yet", name)
	case l.Holder == "":
		return fail("check that a forwarder is running, and read its log", "nobody holds the Lease %s, so nothing is published", name)
	}
	return pass("%s holds the Lease %s", l.Holder, name)
}

func checkClusterName(f *Facts) verdict {
	c, err := f.claim()
	switch {
	case err != nil:
		return warn("depending on the error, grant the permission to read, or find out who else writes to the bus", "the owner of the cluster name cannot be read from the bus: %v", err)
	case c.UID == "" && f.clusterName() == "":
		return skip("the name of the cluster is unknown")
	case c.Refusal() != nil:
		return fail(event.FormatFix, "%v", c.Refusal())
	case c.UID == "":
		return pass("no cluster has claimed the name %s yet", f.clusterName())
	case f.Server.UID == "":
		return skip("the UID of the namespace kube-system is unknown; the owner of the name on the bus has the UID %s", c.UID)
	case !c.Admits(f.Server.UID, f.Settings.Event.ClusterReplaces):
		return fail(fmt.Sprintf("set KUBERELAY_CLUSTER_NAME to another name; if this cluster replaces the other one, which no longer exists, set KUBERELAY_CLUSTER_REPLACES=%s", c.UID),
			"the name %s belongs to another cluster on this bus: its namespace kube-system has the UID %s (claimed %s), and that of this cluster has %s",
			f.clusterName(), c.UID, c.Claimed.UTC().Format(time.RFC3339), f.Server.UID)
	}
	return pass("the name %s belongs to this cluster, or this cluster may take it over", f.clusterName())
}

func (f *Facts) clusterName() string { return cmp.Or(f.Settings.Event.ClusterName, f.Server.UID) }

func checkAnotherWriter(f *Facts) verdict {
	d := f.Forwarder
	switch {
	case f.Settings.Event.Sink == config.SinkStdout:
		return skip("KUBERELAY_SINK is stdout")
	case !f.Settings.Leader.Election && f.Lease.Holder != "":
		return warn("run only one forwarder, or set KUBERELAY_LEADER_ELECTION=true on all of them",
			"KUBERELAY_LEADER_ELECTION is false, and another forwarder, %s, holds the Lease %s/%s", f.Lease.Holder, f.Lease.Namespace, f.Lease.Name)
	case d != nil && d.Bus.ForeignEvents > 0:
		return warn("find out who else can write to the stream or topic, and revoke that permission", "the forwarder repaired %d events that another writer published", d.Bus.ForeignEvents)
	case f.tookOver() != "":
		return fail("run only one forwarder per KUBERELAY_CLUSTER_NAME and per KUBERELAY_KAFKA_TRANSACTIONAL_ID, or set KUBERELAY_LEADER_ELECTION=true on all of them", "%s", f.tookOver())
	case d == nil:
		return skip("without a running forwarder, only its Lease could show another writer")
	case d.Bus.State == status.BusUnused:
		return skip("the forwarder does not use the bus: it is a standby, or starting; ask the leader")
	}
	return pass("the forwarder has seen no event of another writer")
}

// tookOver describes another forwarder that has taken over the topics on Kafka. It returns "" for
// none. After a takeover, the brokers reject the previous forwarder, and it stops.
func (f *Facts) tookOver() string {
	w := f.Kafka.Writer
	if f.Pre || f.Settings.Leader.Election || f.Forwarder != nil || f.TokenNeeded || f.TokenNotReviewed || w.Name == "" || w.Name == f.Writer {
		return ""
	}
	return fmt.Sprintf("%s took over the topics at %s, and the forwarder of this environment does not respond", w.Name, w.Since)
}

// withForwarder returns a check that is skipped before the installation.
func withForwarder(check func(*Facts) verdict) func(*Facts) verdict {
	return func(f *Facts) verdict {
		if f.Pre {
			return skip("the forwarder is not installed yet")
		}
		return check(f)
	}
}

func checkForwarder(f *Facts) verdict {
	switch {
	case f.TokenNeeded:
		return skip("the forwarder responds, and requires a token (KUBERELAY_METRICS_AUTH): pass --token-file")
	case f.TokenNotReviewed:
		return fail("check that the API server is running, and bind the ClusterRole system:auth-delegator to the forwarder's service account", "the forwarder cannot review the token: %v", f.ForwarderErr)
	case f.Forwarder == nil:
		return fail("check that it is running, and check KUBERELAY_LISTEN_ADDR; before the installation, use --pre", "the forwarder does not respond: %v", f.ForwarderErr)
	}
	v := f.Forwarder.Verdict
	const fix = "forwarder status says what is wrong and how to fix it"
	switch v.Level {
	case status.OK:
		return pass("%s", v.Summary)
	case status.Warning:
		return warn(fix, "%s", v.Summary)
	}
	return fail(fix, "%s", v.Summary)
}

func checkForwarderVersion(f *Facts) verdict {
	switch d := f.Forwarder; {
	case d == nil:
		return skip("the forwarder does not respond")
	case d.Version != f.Version:
		return warn("restart the forwarder, or use the program of its release", "the forwarder has the version %s, and this program %s", d.Version, f.Version)
	}
	return pass("the version is %s", f.Version)
}
