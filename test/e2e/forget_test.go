package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// claims returns the number of claims of a cluster name on the bus.
func (b *anyBus) claims(cluster string) (n int) {
	b.t.Helper()
	for _, m := range b.all() {
		if m.Kind() == "claimed" && m.Attributes["source"] == "/kubernetes/"+cluster {
			n++
		}
	}
	return n
}

// eventsOf returns the types of each object's events in a cluster, and the number of objects whose
// last message is a tombstone.
func (b *anyBus) eventsOf(cluster string) (kinds map[string]string, tombstones int) {
	b.t.Helper()
	kinds = map[string]string{}
	last := map[string]bool{}
	for _, m := range b.all() {
		key := m.Subject
		if b.url != "" {
			key = m.Attributes["partitionkey"]
		}
		if !strings.HasPrefix(key, cluster+"/core/") {
			continue
		}
		if last[key] = m.Body == nil; m.Body != nil {
			kinds[key] = strings.TrimSpace(kinds[key] + " " + m.Kind())
		}
	}
	for _, is := range last {
		if is {
			tombstones++
		}
	}
	return kinds, tombstones
}

// TestForget_Slow verifies the command forget. Two clusters share a bus, and the forwarder of one is gone
// for good. After forget, no table and no command shows an object of that cluster, and the other
// cluster's events are unchanged. If the forwarder returns, it publishes every object again.
func TestForget_Slow(t *testing.T) {
	example := buildProgram(t, "../../examples/replica")
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		settings := map[string]string{"RESOURCES": "configmaps,services", "NAMESPACES": namespace, "KAFKA_TRANSACTIONAL_ID": ""}
		old := bus.forwarder(cp.Kubeconfig(), merged(settings, map[string]string{"CLUSTER_NAME": "old"}))
		stays := bus.forwarder(cp.Kubeconfig(), settings)
		for _, name := range []string{"a", "b", "gone"} {
			u.create(configMaps, namespace, configMap(name, "1"))
		}
		u.create(gvr("", "v1", "services"), namespace, "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 1}]}")
		old.start().idle()
		stays.start().idle()
		u.delete(configMaps, namespace, "gone")
		for _, of := range []string{"old", clusterName} { // a forwarder is idle until it receives the delete
			bus.awaitKinds(of+"/core/configmaps/"+namespace+"/gone", "snapshot deleted")
		}
		old.stop()
		const objects = 4 // including kube-root-ca.crt
		before, _ := bus.eventsOf(clusterName)
		oldBefore, _ := bus.eventsOf("old")
		forget := func(code int, words string, args ...string) {
			t.Helper()
			got, stdout, stderr := old.run(append([]string{"forget", "--cluster=old"}, args...)...)
			if got != code || !strings.Contains(stdout+stderr, words) {
				t.Fatalf("forget %v ended with %d: %s%s; want %d, %q", args, got, stdout, stderr, code, words)
			}
		}
		forget(0, "configmaps  3", "--dry-run")
		forget(0, "services    1", "--dry-run")
		forget(1, `a forwarder of the cluster "old" seems to be running: the bus has an event from `, "--yes")
		forget(2, "use --yes", "--force")
		if got, _ := bus.eventsOf("old"); !maps.Equal(got, oldBefore) {
			t.Fatalf("before it is confirmed, the bus has %v, before %v", got, oldBefore)
		}
		if code, _, stderr := old.run("forget", "--cluster=odl", "--yes"); code != 1 || !strings.Contains(stderr, "it has ") || !strings.Contains(stderr, "old") {
			t.Errorf("an unknown cluster: %d, %s", code, stderr)
		}

		table := filepath.Join(t.TempDir(), "table.txt")
		environment := []string{"NATS_URL=" + bus.url, "RESOURCE=configmaps.v1.", "CLUSTER=old", "TABLE=" + table}
		if bus.url == "" {
			environment = append(environment, "KAFKA_BROKERS="+bus.set["KAFKA_BROKERS"], "TOPIC="+bus.set["KAFKA_TOPIC"])
		}
		process(t, nil, environment, example)
		has := func(when string, rows int) {
			t.Helper()
			poll.Try(t, fmt.Sprintf("%s the table has %d rows", when, rows), func(context.Context) error {
				text, err := os.ReadFile(table)
				if got := strings.Count(string(text), "\n"); err != nil || got != rows {
					return fmt.Errorf("it has %d: %w", got, err)
				}
				return nil
			})
		}
		has("before,", 3)
		forget(0, fmt.Sprintf("%d objects deleted", objects), "--yes", "--force")
		has("after it,", 0)
		after, tombstones := bus.eventsOf("old")
		for key, kinds := range after {
			if !strings.HasSuffix(kinds, " deleted") || strings.Count(kinds, "deleted") != 1 {
				t.Errorf("%s has %s", key, kinds)
			}
		}
		if bus.url == "" && tombstones != len(after) {
			t.Errorf("of %d keys, %d end with a tombstone", len(after), tombstones)
		}
		if got, _ := bus.eventsOf(clusterName); !maps.Equal(got, before) {
			t.Errorf("the other cluster has %v, before %v", got, before)
		}
		code, stdout, stderr := old.run("get", "configmaps,services", "-A", "--cluster=old")
		if code != 0 || stdout != "" || !strings.Contains(stderr, "no configmaps,services on the bus") {
			t.Errorf("get ended with %d: %s%s", code, stdout, stderr)
		}
		if got := bus.claims("old"); got != 2 {
			t.Errorf("the name was claimed %d times", got)
		}
		forget(0, "0 objects deleted", "--yes", "--force")
		if got := bus.claims("old"); got != 2 {
			t.Errorf("after the second run, the name was claimed %d times", got)
		}
		stays.idle()
		stays.verify(0, settle)
		stays.stop()

		u.label(configMaps, namespace, "b", "2")
		old.start().idle()
		again, _ := bus.eventsOf("old")
		for key, kinds := range again {
			want := after[key] + " created"
			if strings.HasSuffix(key, "/gone") {
				want = after[key]
			}
			if kinds != want {
				t.Errorf("when the forwarder is back, %s has %s, want %s", key, kinds, want)
			}
		}
		has("when the forwarder is back,", 3)
		u.delete(configMaps, namespace, "a") // the bus already contains an earlier delete of it
		has("after another delete,", 2)
		old.idle()
		old.verify(0, settle)
		if got := bus.claims("old"); got != 3 {
			t.Errorf("when the forwarder is back, the name was claimed %d times", got)
		}
		old.stop()
	})
}

// TestVerifyNamesOtherSettings_Slow verifies that verify names the variables that differ from the
// forwarder's. A start with other settings records them on the bus once. A start without a change
// writes nothing.
func TestVerifyNamesOtherSettings_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		settings := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}
		f := bus.forwarder(cp.Kubeconfig(), settings)
		f.start().idle()
		names := func(set map[string]string, want ...string) {
			t.Helper()
			f.Configure(merged(map[string]string{"RESOLVED_INTERVAL": "0s"}, bus.set, settings, set))
			r := f.verify(0, settle)
			if !slices.Equal(r.Settings, want) {
				t.Errorf("with %v, these differ: %v, want %v", set, r.Settings, want)
			}
			if _, stdout, _ := f.run("verify", settle); strings.Contains(stdout, " from the forwarder's") != (len(want) > 0) || len(want) > 0 && !strings.Contains(stdout, want[0]) {
				t.Errorf("with %v, it says %s", set, stdout)
			}
		}
		other := map[string]string{"FILTER": "true", "EXCLUDE_RESOURCES": "pods"}
		names(nil, []string{}...)
		names(other, "KUBERELAY_EXCLUDE_RESOURCES", "KUBERELAY_FILTER")
		f.stop()
		f.start().idle()
		names(other, []string{}...)
		claims, events := bus.claims(clusterName), bus.count()
		f.stop()
		f.start().idle()
		if c, e := bus.claims(clusterName), bus.count(); claims != 2 || c != claims || e != events {
			t.Errorf("there are %d claims and %d events; before the restart %d and %d", c, e, claims, events)
		}
		f.stop()
	})
}
