package torture

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/harness"
)

// moons are defined only by some plans, and late.
const moons = "moons"

// customResources are all that plans define.
var customResources = []string{widgets, planets, moons}

// The operations that change a definition.
const (
	undefine  opVerb = "undefine"
	define    opVerb = "define"
	serveBoth opVerb = "serve-v1-and-v2" // v2 is stored, and preferred
	serveNew  opVerb = "serve-v2"
	serveOld  opVerb = "serve-v1"
)

// schemaless is a version of a definition that takes any object.
func schemaless(name string, served, stored bool) map[string]any {
	schema := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	return map[string]any{"name": name, "served": served, "storage": stored, "schema": schema}
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

// serve changes which versions of a custom resource are served. What the user does from
// now on is in one that is.
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

func (u *user) useVersion(resource, version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.versions[resource] = version
}

// version is the one in which the user reads and writes a custom resource.
func (u *user) version(resource string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if v, ok := u.versions[resource]; ok {
		return v
	}
	return "v1"
}

// list lists all of a resource, in whatever version it is served: the API server may have
// changed it without an answer.
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

// forgetChanged removes the definitions that other worlds do not know, or know otherwise.
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
	return harness.Eventually(ctx, limit, "the definition of "+resource+" is gone", func(ctx context.Context) error {
		err := u.do(ctx, op{do: undefine, target: target{resource: resource}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// awaitServed waits until objects of a custom resource can be created, if that is soon.
func (w *world) awaitServed(ctx context.Context, resource string) {
	_ = harness.Eventually(ctx, servedLimit, resource+" are served", func(ctx context.Context) error {
		return w.user.served(ctx, resource)
	})
}
