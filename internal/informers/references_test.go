package informers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/internal/references"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// owned creates an object with owners. The first owner is the controller.
func owned(t *testing.T, client dynamic.Interface, gvr schema.GroupVersionResource, namespace, manifest string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	for n, o := range owners {
		controls := n == 0
		u.SetOwnerReferences(append(u.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), Controller: &controls,
		}))
	}
	created, err := client.Resource(gvr).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// TestFollowOwners verifies that the direct and indirect owners of a selected object are selected
// as long as they own it. Other objects of the owners' resources are not selected.
func TestFollowOwners(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client, _ := clients(t, cp.Config())
	replicaSets := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	templates := schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}
	key := func(gvr schema.GroupVersionResource, name string) event.Key {
		return event.Key{Group: gvr.Group, Resource: gvr.Resource, Namespace: namespace, Name: name}
	}
	const spec = `{"selector": {"matchLabels": {"a": "b"}}, "replicas": 0, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}`
	const template = `{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": %q}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}`
	const set = `{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": %q}, "spec": %s}`
	const configMap = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q}}`
	top := owned(t, client, templates, namespace, fmt.Sprintf(template, "top"))
	middle := owned(t, client, replicaSets, namespace, fmt.Sprintf(set, "middle", spec), top)
	owned(t, client, replicaSets, namespace, fmt.Sprintf(set, "other", spec), top)
	bottom := owned(t, client, configMaps, namespace, fmt.Sprintf(configMap, "bottom"), middle)

	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}},
		Follow: []string{references.Owners}, LabelSelector: "!none",
	})
	r.awaitView(t, "what is selected", key(configMaps, "bottom"), bottom)
	r.awaitView(t, "its owner", key(replicaSets, "middle"), middle)
	r.awaitView(t, "the owner's owner", key(templates, "top"), top)
	poll.Try(t, "the top of the chain", func(context.Context) error {
		v := r.Lookup(key(configMaps, "bottom"))
		if v.Hold || v.Owner == nil || *v.Owner != (event.Owner{Kind: "PodTemplate", Name: "top"}) {
			return fmt.Errorf("got %+v, hold %v", v.Owner, v.Hold)
		}
		return nil
	})
	r.await(t, "what waited for its owners is enqueued again", func() bool {
		v := r.views[key(configMaps, "bottom")]
		return !v.Hold && v.Owner != nil && v.Owner.Kind == "PodTemplate"
	})
	poll.Try(t, "all are synced", func(context.Context) error {
		if err := r.Ready(); err != nil {
			return err
		}
		if !r.references.IsComplete() {
			return fmt.Errorf("not complete")
		}
		return nil
	})
	if v := r.Lookup(key(replicaSets, "other")); v.Live != nil {
		t.Error("a resource is followed as a whole")
	}
	for _, k := range []event.Key{key(configMaps, "bottom"), key(replicaSets, "middle"), key(templates, "top")} {
		live := r.Lookup(k).Live
		r.acknowledge(k, event.Acked{UID: string(live.UID), ResourceVersion: live.ResourceVersion})
	}

	if err := client.Resource(configMaps).Namespace(namespace).Delete(t.Context(), "bottom", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.awaitView(t, "the owner is not referred to any more", key(replicaSets, "middle"), nil, middle)
	r.awaitView(t, "nor is its owner", key(templates, "top"), nil, top)
	if v := r.Lookup(key(templates, "top")); len(v.Tombstones) != 1 || !v.Tombstones[0].Deselected {
		t.Errorf("got %+v, want a deselection", v)
	}
	owned(t, client, configMaps, namespace, fmt.Sprintf(configMap, "again"), middle)
	r.awaitView(t, "the owner is referred to again", key(replicaSets, "middle"), middle)
	r.awaitView(t, "and its owner", key(templates, "top"), top)
}

// TestFollowedWhileDown verifies that an object on the bus is deselected if it lost its last
// reference while the forwarder was down.
func TestFollowedWhileDown(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client, _ := clients(t, cp.Config())
	secrets := configMaps
	secrets.Resource = "serviceaccounts"
	const account = `{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": %q}}`
	const configMap = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q}}`
	still := owned(t, client, secrets, namespace, fmt.Sprintf(account, "still"))
	not := owned(t, client, secrets, namespace, fmt.Sprintf(account, "not"))
	owned(t, client, configMaps, namespace, fmt.Sprintf(configMap, "one"), still)
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}}, Follow: []string{references.Owners},
	})
	key := event.Key{Resource: "serviceaccounts", Namespace: namespace, Name: "not"}
	r.acknowledge(key, ackedOf(not))
	r.awaitView(t, "what nothing refers to", key, nil, not)
	poll.Try(t, "compared", func(context.Context) error {
		got, err := r.reconcile(t, secrets.GroupResource())
		if got != (reconcile.Comparison{Deselected: 1}) || err != nil {
			return fmt.Errorf("%+v, %w", got, err)
		}
		return nil
	})
}

// TestFollowWhatIsDefinedLater verifies that a reference to an unknown kind takes effect when the
// kind is defined.
func TestFollowWhatIsDefinedLater(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client, _ := clients(t, cp.Config())
	const group = "followed.example.com"
	endpoints := configMaps
	endpoints.Resource = "endpoints"
	owned(t, client, endpoints, namespace, `{"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"},
		"subsets": [{"addresses": [{"ip": "10.1.2.3", "targetRef": {"apiVersion": "`+group+`/v1", "kind": "Widget", "name": "w"}}], "ports": [{"port": 1}]}]}`)
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"endpoints"}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}},
		Follow: []string{"endpoints:subsets.addresses.targetRef"},
	})
	poll.Try(t, "ready", func(context.Context) error { return r.Ready() })
	// A targetRef has apiVersion but no group field, and Endpoints drop unknown fields.
	if got := r.references.Sources(endpoints.GroupResource()); !slices.Contains(got, event.Key{Resource: "endpoints", Namespace: namespace, Name: "e"}) {
		t.Fatalf("the reference is not seen: %v", got)
	}
	widgets := define(t, cp, group, false, "v1")
	objects := newObjects(t, cp, widgets, "Widget", "")
	w := objects.create("w", nil)
	objects.create("unrelated", nil)
	r.awaitView(t, "what is referred to", objects.key("w"), w)
	if v := r.Lookup(objects.key("unrelated")); v.Live != nil {
		t.Error("an unrelated object is selected too")
	}
}

// TestReferencesEndWithTheirResource verifies that objects refer to nothing anymore after the
// definition of their resource is deleted.
func TestReferencesEndWithTheirResource(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client, _ := clients(t, cp.Config())
	const group = "referring.example.com"
	widgets := define(t, cp, group, true, "v1", "v2")
	newObjects(t, cp, widgets, "Widget", namespace).create("probe", nil)
	owned(t, client, widgets, namespace, `{"apiVersion": "`+group+`/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"ref": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}}}`)
	objects := newObjects(t, cp, configMaps, "ConfigMap", namespace)
	c := objects.create("c", nil)
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"widgets." + group}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}}, Follow: []string{"spec.ref"},
	})
	r.awaitView(t, "what is referred to", objects.key("c"), c)
	poll.Try(t, "all is known", func(context.Context) error {
		if !r.references.IsComplete() {
			return fmt.Errorf("not complete")
		}
		return nil
	})
	undefine(t, cp, group)
	poll.Try(t, "it is certain", func(context.Context) error {
		if r.watches(widgets.GroupResource()) {
			return fmt.Errorf("the resource is still watched")
		}
		_, err := r.reconcile(t, widgets.GroupResource())
		if err == nil && len(r.references.Sources(widgets.GroupResource())) > 0 {
			return fmt.Errorf("objects of the resource still refer to others")
		}
		return err
	})
	r.awaitView(t, "nothing refers to it any more", objects.key("c"), nil, c)
}

// TestFollowWhileAGroupFails verifies that no object is deselected while the discovery of a group
// fails, because objects of that group may refer to it.
func TestFollowWhileAGroupFails(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client, discoveryClient := clients(t, cp.Config())
	accounts := configMaps
	accounts.Resource = "serviceaccounts"
	one := owned(t, client, accounts, namespace, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"one"}}`)
	two := owned(t, client, accounts, namespace, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"two"}}`)
	owned(t, client, configMaps, namespace, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`, two)
	group := namespace + ".example.com" // discovery can still show the group of an earlier run
	apiService(t, cp, group, "v1")
	// The API server shows a new APIService after a moment. A discovery before that fails for no group.
	poll.Try(t, "the group fails", func(ctx context.Context) error {
		c, _, err := discovery.Discover(ctx, discoveryClient, nil)
		if err == nil && c.Failed[group] == nil {
			err = errors.New("discovery does not show the group")
		}
		return err
	})
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps", "things." + group}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}},
		Follow: []string{references.Owners},
	})
	key := event.Key{Resource: "serviceaccounts", Namespace: namespace, Name: "one"}
	r.acknowledge(key, ackedOf(one))
	r.awaitView(t, "what is referred to", event.Key{Resource: "serviceaccounts", Namespace: namespace, Name: "two"}, two)
	poll.Try(t, "ready", func(context.Context) error { return r.Ready() })
	if got, err := r.reconcile(t, accounts.GroupResource()); got != (reconcile.Comparison{Waiting: 1}) || err != nil {
		t.Errorf("got %+v, %v; want no conclusion", got, err)
	}
	if r.hasBeenBuried(key) {
		t.Error("the object was deselected")
	}
}

// TestReferencesAreCompleteWithoutAccess verifies that the references are complete once access is denied
// to the last resource that was not listed. In an earlier version, they stayed incomplete, and objects
// that nothing referred to anymore stayed on the bus until another informer started.
func TestReferencesAreCompleteWithoutAccess(t *testing.T) {
	discovered := 0
	denied := controlplanetest.Reviews(func(authorizationv1.ResourceAttributes) (bool, error) { return false, nil })
	b := newBench(t, Config{Follow: []string{"spec.ref"}, Discovered: func() { discovered++ }, Access: discovery.NewAccess(denied, nil, time.Now)}, testResource)
	b.sync()
	b.answer = &survey.Answer{Catalog: &discovery.Catalog{}}
	w := b.newWatched(event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}, false, func() {})
	b.Set.watched.Put(w.groupResource(), w)
	if b.completeReferences(); b.references.IsComplete() {
		t.Fatal("complete before the informers of a resource have started")
	}
	var running sync.WaitGroup
	if b.align(t.Context(), w, &running); !b.references.IsComplete() || discovered != 1 {
		t.Errorf("complete: %t, discovered: %d", b.references.IsComplete(), discovered)
	}
}

// TestReferencesAreIncompleteBeforeTheFirstInformers verifies that the references stay incomplete if the
// list of namespaces arrives while a resource still waits for it. In an earlier version, the resource
// then counted as listed without informers, and the objects to which only its objects refer were
// deselected.
func TestReferencesAreIncompleteBeforeTheFirstInformers(t *testing.T) {
	b := newBench(t, Config{
		Follow: []string{"spec.ref"}, Discovered: func() {}, Namespaces: discovery.NamespaceSelection{Selector: selector(t, "team=a")},
	}, testResource)
	b.sync()
	b.answer = &survey.Answer{Catalog: &discovery.Catalog{}}
	w := b.newWatched(event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}, false, func() {})
	b.Set.watched.Put(w.groupResource(), w)
	var listed sync.Once
	b.config.Now = func() time.Time { // align needs the time after it has seen that no namespace is listed
		listed.Do(b.namespaces.Synced)
		return time.Now()
	}
	var running sync.WaitGroup
	if b.align(t.Context(), w, &running); w.listed() || b.references.IsComplete() {
		t.Errorf("listed: %t, complete: %t", w.listed(), b.references.IsComplete())
	}
	if b.align(t.Context(), w, &running); !w.listed() || !b.references.IsComplete() {
		t.Errorf("with the namespaces: listed: %t, complete: %t", w.listed(), b.references.IsComplete())
	}
}
