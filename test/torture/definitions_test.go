package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// moons is a custom resource that only some plans define, and only in a later phase.
const moons = "moons"

// customResources are all custom resources that plans define.
var customResources = []string{widgets, planets, moons}

// The operations that change a definition
const (
	undefine  opVerb = "undefine"
	define    opVerb = "define"
	serveBoth opVerb = "serve-v1-and-v2" // v2 is stored and preferred
	serveNew  opVerb = "serve-v2"
	serveOld  opVerb = "serve-v1"

	giveDefault opVerb = "default"       // adds a default value for a field
	giveOther   opVerb = "other-default" // changes the default, and with it the content of objects that weren't written since
	prune       opVerb = "prune"         // removes fields
	takeSchema  opVerb = "schemaless"

	unblock opVerb = "remove-finalizer"
)

// schemaless returns a version of a definition that accepts any object.
func schemaless(name string, served, stored bool) map[string]any {
	return map[string]any{"name": name, "served": served, "storage": stored, "schema": modeled(takeSchema)}
}

func (u *user) define(ctx context.Context, resource string) error {
	kind := objectKinds[resource]
	scope := "Namespaced"
	if resource == planets {
		scope = "Cluster"
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": group, "scope": scope,
		"names":    map[string]any{"plural": resource, "singular": strings.TrimSuffix(resource, "s"), "kind": kind},
		"versions": []any{schemaless("v1", true, true)},
	}}}
	o.SetAPIVersion("apiextensions.k8s.io/v1")
	o.SetKind("CustomResourceDefinition")
	o.SetName(resource + "." + group)
	_, err := u.client.Resource(definitions).Create(ctx, o, metav1.CreateOptions{})
	if err == nil {
		u.useVersion(resource, "v1")
	}
	return err
}

// serve changes the served versions of a custom resource. From then on, the user uses one of them.
func (u *user) serve(ctx context.Context, resource string, how opVerb) error {
	spec := map[string]any{"spec": map[string]any{"versions": []any{
		schemaless("v1", how != serveNew, how == serveOld), schemaless("v2", how != serveOld, how != serveOld),
	}}}
	patch, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.changed[resource] = true
	u.mu.Unlock()
	_, err = u.client.Resource(definitions).Patch(ctx, resource+"."+group, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err != nil:
	case how == serveNew:
		u.useVersion(resource, "v2")
	case how == serveOld:
		u.useVersion(resource, "v1")
	}
	return err
}

// remodel changes the schema of every version of a definition.
func (u *user) remodel(ctx context.Context, resource string, how opVerb) error {
	client := u.client.Resource(definitions)
	o, err := client.Get(ctx, resource+"."+group, metav1.GetOptions{})
	if err != nil {
		return err
	}
	versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, v := range versions {
		v.(map[string]any)["schema"] = modeled(how)
	}
	u.mu.Lock()
	u.changed[resource], u.remodeled[resource] = true, true
	u.mu.Unlock()
	if err := unstructured.SetNestedSlice(o.Object, versions, "spec", "versions"); err != nil {
		return err
	}
	_, err = client.Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// wasRemodeled reports whether objects of a resource may have changed their content without a new
// version.
func (u *user) wasRemodeled(resource string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.remodeled[resource]
}

// leaveModeled removes the fields that schemas add and remove.
func leaveModeled(object map[string]any) {
	delete(object, "note")
	if data, ok := object["data"].(map[string]any); ok {
		delete(data, "also")
		delete(data, "more")
		delete(data, "noise")
	}
}

// unblock removes the finalizers of a definition, which otherwise keep the definition until its
// objects are gone.
func (u *user) unblock(ctx context.Context, resource string) error {
	u.orphan(resource)
	_, err := u.client.Resource(definitions).Patch(ctx, resource+"."+group, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	return err
}

// orphan records that objects of a resource may stay in etcd while it isn't served.
func (u *user) orphan(resource string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.orphaned[resource] = true
}

// wasOrphaned reports whether objects of a resource may have stayed in etcd while it wasn't
// served.
func (u *user) wasOrphaned(resource string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.orphaned[resource]
}

// adopt recreates missing definitions, so that the API server lists the objects that stayed in etcd.
func (w *world) adopt(ctx context.Context) error {
	var all error
	for _, name := range customResources {
		if !w.user.wasOrphaned(name) {
			continue
		}
		all = errors.Join(all, poll.Until(ctx, limit, name+" can be listed", func(ctx context.Context) error {
			if err := w.user.define(ctx, name); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			_, err := w.user.client.Resource(w.user.resource(name)).List(ctx, metav1.ListOptions{})
			return err
		}))
	}
	return all
}

func (u *user) useVersion(resource, version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.versions[resource] = version
}

// version returns the version in which the user reads and writes a custom resource.
func (u *user) version(resource string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if v, ok := u.versions[resource]; ok {
		return v
	}
	return "v1"
}

// list lists all objects of a resource in any served version. An earlier change of the versions may
// have succeeded although its response was lost.
func (u *user) list(ctx context.Context, name string) ([]unstructured.Unstructured, error) {
	gvr := u.resource(name)
	for _, version := range []string{gvr.Version, "v1", "v2"} {
		if gvr.Group == "" {
			version = gvr.Version
		}
		gvr.Version = version
		list, err := u.client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err == nil {
			return list.Items, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, nil
}

// forgetChanged removes the definitions that other worlds don't expect, or expect with other versions
// or schemas.
func (u *user) forgetChanged(ctx context.Context) error {
	u.mu.Lock()
	names := []string{moons}
	for name := range u.changed {
		names = append(names, name)
	}
	u.mu.Unlock()
	var all error
	for _, name := range names {
		all = errors.Join(all, u.forget(ctx, name))
	}
	return all
}

// forget removes a definition and waits until it is gone.
func (u *user) forget(ctx context.Context, resource string) error {
	return poll.Until(ctx, limit, "the definition of "+resource+" is gone", func(ctx context.Context) error {
		err := u.do(ctx, op{do: undefine, target: target{resource: resource}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("the definition still exists"))
	})
}

// requeueDefinitions makes the first API server finalize each terminating definition after the
// second API server was killed. The finalizer controller leaves a definition to the API server
// that updated the status first, and doesn't requeue it when only the Terminating condition
// changes (k8s.io/apiextensions-apiserver, pkg/controller/finalizer). If that API server is
// killed, the definition keeps terminating until the informer of the other one resyncs, after up
// to 5 minutes.
func (u *user) requeueDefinitions(ctx context.Context) error {
	client := u.client.Resource(definitions)
	all, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	change := fmt.Appendf(nil, `{"metadata": {"annotations": {"%s/requeued-by": %q}}}`, group, u.home)
	for _, o := range all.Items {
		if o.GetDeletionTimestamp() == nil {
			continue
		}
		if _, e := client.Patch(ctx, o.GetName(), types.MergePatchType, change, metav1.PatchOptions{}); !apierrors.IsNotFound(e) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// awaitServed waits up to servedLimit until objects of a custom resource can be created.
func (w *world) awaitServed(ctx context.Context, resource string) {
	_ = poll.Until(ctx, servedLimit, resource+" are served", func(ctx context.Context) error {
		return w.user.served(ctx, resource)
	})
}
