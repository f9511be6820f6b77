package informers

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/references"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// TestAnOwnerThatMayNotBeRead verifies that an object does not wait for an owner that the forwarder
// may not read, and names the topmost known owner. Either an access review or a failed list shows
// that access is denied.
func TestAnOwnerThatMayNotBeRead(t *testing.T) {
	cp := cluster.ControlPlane(t)
	allow(t, cp, "configmaps")
	for name, access := range map[string]*discovery.Access{"asked": access(t, cp.ConfigFor("reader")), "tried": nil} {
		t.Run(name, func(t *testing.T) {
			namespace := controlplanetest.Namespace(t, cp)
			client, _ := clients(t, cp.Config())
			templates := schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}
			top := owned(t, client, templates, namespace, `{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "top"},
				"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}`)
			bottom := owned(t, client, configMaps, namespace, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bottom"}}`, top)
			r := start(t, cp.ConfigFor("reader"), Config{
				Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}},
				Follow: []string{references.Owners}, Access: access,
			})
			k := event.Key{Resource: "configmaps", Namespace: namespace, Name: "bottom"}
			r.awaitView(t, "what it owns", k, bottom)
			r.await(t, "it does not wait", func() bool {
				v := r.views[k]
				return !v.Hold && v.Owner != nil && *v.Owner == event.Owner{Kind: "PodTemplate", Name: "top"}
			})
		})
	}
}
