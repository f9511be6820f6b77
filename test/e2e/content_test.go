package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// served waits until the API server returns an object with this spec, without a write to the object.
// It returns the object's resourceVersion.
func (u *user) served(of schema.GroupVersionResource, namespace, name, spec string) string {
	u.t.Helper()
	var version string
	poll.Try(u.t, name+" is served as "+spec, func(ctx context.Context) error {
		o, err := u.of(of, namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		text, err := json.Marshal(o.Object["spec"])
		if err != nil || string(text) != spec {
			return fmt.Errorf("got %s, %w", text, err)
		}
		version = o.GetResourceVersion()
		return nil
	})
	return version
}

// TestContentChangesWithoutAVersion_Slow verifies that a content change without a new resourceVersion is
// published. A definition gains a default and then prunes a field, each while the forwarder runs and
// while it is down.
func TestContentChangesWithoutAVersion_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		ns := controlplanetest.Namespace(t, cp)
		group := "content-" + t.Name()[strings.LastIndexByte(t.Name(), '/')+1:] + ".example.com"
		of := gvr(group, "v1", "gadgets")
		u.defineGadgets(group, noConversion, "v1*")
		u.createServed(of, ns, gadget(group+"/v1", "g", 1))
		u.createServed(of, ns, gadget(group+"/v1", "other", 1))
		// The default periods of resyncs and checkpoint refreshes are longer than the test, so
		// neither helps.
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "gadgets." + group, "NAMESPACES": ns})
		f.start().idle()
		k := strings.Replace(key("gadgets", ns, "g"), "/core/", "/"+group+"/", 1)
		bus.awaitKinds(k, "snapshot")

		kinds := "snapshot"
		plain := gadgets(group, noConversion, "v1*")
		steps := []struct{ what, schema, spec string }{
			{"gains a default", `note: {type: string, default: "hello"}`, `{"note":"hello","size":1}`},
			{"prunes a field", "", `{"size":1}`},
		}
		for _, down := range []bool{false, true} {
			for _, step := range steps {
				if down {
					f.kill()
				}
				manifest := strings.Replace(plain, "note: {type: string}", step.schema, 1)
				if step.schema == "" {
					manifest = strings.Replace(plain, ", note: {type: string}", "", 1)
				}
				u.changeDefinition("gadgets."+group, manifest)
				version := u.served(of, ns, "g", step.spec)
				if down {
					f.start().idle()
				}
				kinds += " updated"
				all := bus.awaitKinds(k, kinds)
				last := all[len(all)-1]
				if got := last.Attributes["resourceversion"]; got != version || last.Attributes["previousversion"] != version {
					t.Errorf("%s, down %t: the update is of version %s after %s, want both %s", step.what, down, got, last.Attributes["previousversion"], version)
				}
				if got := fmt.Sprintf("%v", decode(t, last.Body)["spec"]); strings.Contains(got, "hello") != strings.Contains(step.spec, "hello") {
					t.Errorf("%s, down %t: the data has the spec %s, want %s", step.what, down, got, step.spec)
				}
				if got := last.Attributes["changed"]; got != "/spec/note" {
					t.Errorf("%s, down %t: changed is %q", step.what, down, got)
				}
				f.verifyClean()
			}
		}
		ids := map[string]bool{}
		for _, m := range bus.events()[k] {
			if ids[m.Attributes["id"]] {
				t.Errorf("the id %s is there twice", m.Attributes["id"])
			}
			ids[m.Attributes["id"]] = true
		}

		// Nothing has changed, so a restart must publish nothing.
		n := bus.count()
		f.kill()
		f.start().idle()
		if got := bus.count(); got != n {
			t.Errorf("%d events after another start, want %d", got, n)
		}
	})
}
