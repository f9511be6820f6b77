package main

import (
	"context"
	"embed"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// watched is what the forwarder is told to watch, and watchedLabels of which
// objects: not of the roles that the API server makes by itself, which are of no
// interest here. The group of the demo's own resource does not exist when the
// forwarder starts.
const (
	watched       = "namespaces,deployments,replicasets,pods,roles,customresourcedefinitions,*.demo.kuberelay.io"
	watchedLabels = "kubernetes.io/bootstrapping!=rbac-defaults"
)

// watchedResources is what that is in this cluster.
var watchedResources = []schema.GroupVersionResource{namespaces, deployments, replicaSets, pods, roles, definitions, widgets}

var (
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	roles       = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "demo.kuberelay.io", Version: "v1", Resource: "widgets"}
)

// manifests are the objects that the demo creates.
//
//go:embed manifests
var manifests embed.FS

// cluster is the API server as a user has it.
type cluster struct{ client dynamic.Interface }

func newCluster(config *rest.Config) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster{client}, nil
}

// in is a resource, in the demo's namespace if it is a namespaced one.
func (c *cluster) in(r schema.GroupVersionResource) dynamic.ResourceInterface {
	switch r {
	case namespaces, definitions:
		return c.client.Resource(r)
	}
	return c.client.Resource(r).Namespace(demoNamespace)
}

// create creates the object of a manifest. It waits for its resource, should that
// have just been defined.
func (c *cluster) create(ctx context.Context, r schema.GroupVersionResource, manifest string) error {
	text, err := manifests.ReadFile("manifests/" + manifest)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		return fmt.Errorf("read %s: %w", manifest, err)
	}
	_, err = retry(ctx, apierrors.IsNotFound, func() (*unstructured.Unstructured, error) {
		return c.in(r).Create(ctx, object, metav1.CreateOptions{})
	})
	return err
}

// patch changes an object by a JSON merge patch (RFC 7386).
func (c *cluster) patch(ctx context.Context, r schema.GroupVersionResource, name, patch string, subresources ...string) error {
	_, err := c.in(r).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

func (c *cluster) delete(ctx context.Context, r schema.GroupVersionResource, name string) error {
	return c.in(r).Delete(ctx, name, metav1.DeleteOptions{})
}

// versions is what the API server says exists of all that is watched.
func (c *cluster) versions(ctx context.Context) (map[string]string, error) {
	versions := map[string]string{}
	for _, r := range watchedResources {
		list, err := c.client.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: watchedLabels})
		if apierrors.IsNotFound(err) {
			continue // not defined, yet or any more
		}
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			versions[objectName(r.GroupResource().String(), o.GetNamespace(), o.GetName())] = o.GetResourceVersion()
		}
	}
	return versions, nil
}
