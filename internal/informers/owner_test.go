package informers

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/internal/event"
)

// TestAnOwnerThatMayNotBeRead: what it owns does not wait for it, and names it as far as it
// is known. It is found out by asking, or by failing.
func TestAnOwnerThatMayNotBeRead(t *testing.T) {
	cp := cluster.ControlPlane(t)
	allow(t, cp, "configmaps")
	for name, access := range map[string]Access{"asked": reviews(t, cp.ConfigFor("reader")), "tried": nil} {
		t.Run(name, func(t *testing.T) {
			namespace := controlplanetest.Namespace(t, cp)
			client, _ := clients(t, cp.Config())
			templates := schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}
			top := owned(t, client, templates, namespace, `{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "top"},
				"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}`)
			bottom := owned(t, client, configMaps, namespace, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bottom"}}`, top)
			r := start(t, cp.ConfigFor("reader"), Config{
				Selection: Selection{Include: []string{"configmaps"}}, Namespaces: NamespaceSelection{Include: []string{namespace}},
				Follow: []string{ownerReferences}, Access: access,
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

// TestLearn: kinds of groups whose discovery fails are kept, those of others are not.
func TestLearn(t *testing.T) {
	pod, thing := schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Group: "away.example.com", Kind: "Thing"}
	f := newFollow([]string{ownerReferences})
	f.learn(map[schema.GroupKind]event.Resource{
		pod: {Resource: "pods", Namespaced: true}, thing: {Group: "away.example.com", Resource: "things"},
	}, nil)
	k := event.Key{Resource: "configmaps", Namespace: "default", Name: "c"}
	refs := []event.Reference{{Group: thing.Group, Kind: thing.Kind, Name: "t"}}
	f.set(k, f.targets(k, refs))
	clusterScoped := target{thing, "", "t"}
	if !f.refers(clusterScoped) {
		t.Fatal("a reference to a cluster-scoped object has a namespace")
	}
	if again := f.learn(map[schema.GroupKind]event.Resource{pod: {Resource: "pods", Namespaced: true}}, map[string]error{"away.example.com": fmt.Errorf("away")}); len(again) > 0 {
		t.Errorf("its group fails: %v are to be looked at again", again)
	}
	if _, ok := f.resource(thing); !ok {
		t.Error("its group fails: the kind is forgotten")
	}
	if again := f.learn(map[schema.GroupKind]event.Resource{pod: {Resource: "pods", Namespaced: true}}, nil); len(again) != 1 {
		t.Errorf("the kind is gone: %v are to be looked at again", again)
	}
}

// TestFollowable: what is excluded, or has to be named, is not followed.
func TestFollowable(t *testing.T) {
	c := mustDiscover(t, testCluster())
	all := Selection{}.followable(c)
	known := Selection{Exclude: []string{"deployments.apps"}, UnlessNamed: []string{"secrets"}}.followable(c)
	for gk, want := range map[schema.GroupKind]bool{
		{Kind: "Pod"}: true, {Kind: "Secret"}: false, {Group: "apps", Kind: "Deployment"}: false,
	} {
		if _, ok := all[gk]; !ok {
			t.Errorf("%s is not known", gk)
		}
		if _, ok := known[gk]; ok != want {
			t.Errorf("%s: %v, want %v", gk, ok, want)
		}
	}
}
