package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/status"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// says waits until status ends with the exit code and its first line contains the cause.
func (f *forwarder) says(code int, cause string) {
	f.t.Helper()
	poll.Try(f.t, fmt.Sprintf("status ends with %d and says %q", code, cause), func(context.Context) error {
		got, stdout, stderr := f.run("status")
		if first, _, _ := strings.Cut(stdout, "\n"); got != code || !strings.Contains(first, cause) || stderr != "" {
			return fmt.Errorf("it ended with exit code %d: %s%s", got, stdout, stderr)
		}
		return nil
	})
}

// well runs status --wait and fails the test unless the verdict becomes OK.
func (f *forwarder) well() {
	f.t.Helper()
	if code, stdout, stderr := f.run("status", "--wait="+(limit/2).String()); code != 0 || !strings.HasPrefix(stdout, "OK: ") {
		f.t.Fatalf("status --wait ended with %d and says:\n%s%s", code, stdout, stderr)
	}
}

// document returns the status document of the forwarder.
func (f *forwarder) document() (d status.Document) {
	f.t.Helper()
	_, stdout, stderr := f.run("status", "--output=json")
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		f.t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	return d
}

// TestStatus_Slow causes several faults, one after the other. For each fault, status must name the cause
// and end with the right exit code. After the fault, status must report OK again.
func TestStatus_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	mayRead := u.letRead(namespace, `"configmaps", "services"`)
	u.create(configMaps, namespace, configMap("a", "1"))
	settings := func(more map[string]string) map[string]string {
		return merged(map[string]string{"RESOURCES": "configmaps,services", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "1s"}, more)
	}
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, settings(nil))
	restart := func(more map[string]string) {
		t.Helper()
		f.kill()
		f.Configure(settings(more))
		f.start()
	}

	f.says(2, "CRITICAL: the forwarder does not respond")
	f.start().well()
	poll.Try(t, "status shows when the copy was right", func(context.Context) error {
		d := f.document()
		for _, r := range d.Resources {
			if r.ConsistentAsOf == nil {
				return fmt.Errorf("%+v", r)
			}
		}
		if r := d.Resources[0]; r.Name != "configmaps" || r.State != "synced" || r.Objects < 1 || r.Dirty == nil || *r.Dirty > 0 || r.LastPublished == nil {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	if code, stdout, _ := f.run("status", "--output=nagios"); code != 0 || !strings.HasPrefix(stdout, "KUBERELAY OK - 2 resources watched") {
		t.Errorf("for Nagios, it ended with %d and says %s", code, stdout)
	}

	bus.Kill()
	f.says(2, "CRITICAL: bus unavailable for ")
	u.create(configMaps, namespace, configMap("b", "1"))
	poll.Try(t, "the object is dirty", func(context.Context) error {
		if r := f.document().Resources[0]; r.Dirty == nil || *r.Dirty == 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	bus.Start()
	f.well()

	restart(map[string]string{"RESOURCES": "configmaps,servces"})
	f.says(1, "WARNING: KUBERELAY_RESOURCES: servces matches nothing; did you mean services?")
	restart(map[string]string{"RESOURCES": "servces"})
	f.says(2, "CRITICAL: nothing is watched: KUBERELAY_RESOURCES matches nothing")
	restart(map[string]string{"FILTER": `resource.kind == "Services"`})
	f.says(1, "WARNING: KUBERELAY_FILTER selects no object of configmaps")
	restart(map[string]string{"LABEL_SELECTOR": "app=wbe"})
	f.says(1, "WARNING: no object is selected by KUBERELAY_NAMESPACES="+namespace+", KUBERELAY_LABEL_SELECTOR=app=wbe")

	grant := func(resources string) {
		t.Helper()
		mayRead(resources)
		awaitAccess(t, cp, configMaps, namespace, strings.Contains(resources, "configmaps"))
		awaitAccess(t, cp, gvr("", "v1", "services"), namespace, strings.Contains(resources, "services"))
	}
	restart(map[string]string{"FILTER": `resource.kind != "ConfigMap" || object.data.absent == "x"`})
	f.says(1, "WARNING: KUBERELAY_FILTER fails for objects of 1 resource, so these objects are published: configmaps (")

	grant(`"configmaps"`)
	restart(nil)
	f.says(1, "WARNING: access denied to 1 of 2 resources: services (")
	grant(`"configmaps", "services"`)
	f.well()
	grant(`"pods"`)
	restart(nil)
	f.says(2, "CRITICAL: access denied to every selected resource: configmaps (")
	f.stop()
}

// TestStatusWithoutGet deletes an object while no forwarder watches. Without permission to get the
// object, the forwarder can't prove the delete. So the object stays on the bus, and no consistency
// point is published.
func TestStatusWithoutGet(t *testing.T) {
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	mayRead := u.letRead(namespace, `"configmaps"`)
	listOnly := []byte(`{"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]}`)
	if _, err := u.of(gvr("rbac.authorization.k8s.io", "v1", "roles"), namespace).Patch(t.Context(), "reader", types.MergePatchType, listOnly, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	u.create(configMaps, namespace, configMap("a", "1"))
	f := newForwarder(t, cp.KubeconfigFor("little"), natsServer(t).URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "1s"})
	f.start().well()
	f.kill()
	u.delete(configMaps, namespace, "a")
	f.start().says(1, "WARNING: the bus cannot be compared with the cluster, so deletes can be missing: configmaps; configmaps for ")
	f.reaches("kuberelay_resolved_age_seconds", 1)
	if d := f.document(); len(d.Comparisons) != 1 || d.Comparisons[0].Resource != "configmaps" || d.Resources[0].ConsistentAsOf != nil || d.Resources[0].NoPointSince == nil {
		t.Errorf("%+v, %+v", d.Comparisons, d.Resources)
	}
	mayRead(`"configmaps"`)
	f.well()
	f.stop()
}

// TestStatusKafka_Slow verifies that status names the cause while a Kafka broker is down.
func TestStatusKafka_Slow(t *testing.T) {
	broker := kafkabrokertest.Start(t, kafkabroker.Options{})
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	u.create(configMaps, namespace, configMap("a", "1"))
	f := newForwarder(t, cp.Kubeconfig(), "", onKafka(topic{t, broker.Addr(), "status"}, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}))
	f.start().well()
	broker.Kill()
	u.create(configMaps, namespace, configMap("b", "1"))
	f.says(2, "CRITICAL: bus unavailable for ")
	f.kill()
	f.start()
	f.says(2, "CRITICAL: the bus is unavailable or refuses the forwarder: ")
	broker.Start()
	f.well()
	f.stop()
}
