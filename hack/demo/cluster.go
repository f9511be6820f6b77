package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

const (
	// watched and watchedLabels select the objects that the forwarder watches. The label selector
	// leaves out the roles that the API server creates. The group demo.kuberelay.io doesn't exist at
	// first.
	watched       = "namespaces,deployments,replicasets,pods,roles,customresourcedefinitions,*.demo.kuberelay.io"
	watchedLabels = "kubernetes.io/bootstrapping!=rbac-defaults"
)

type gvr = schema.GroupVersionResource

var (
	namespaces  = gvr{Version: "v1", Resource: "namespaces"}
	deployments = gvr{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSets = gvr{Group: "apps", Version: "v1", Resource: "replicasets"}
	pods        = gvr{Version: "v1", Resource: "pods"}
	roles       = gvr{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	definitions = gvr{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = gvr{Group: "demo.kuberelay.io", Version: "v1", Resource: "widgets"}
)

// manifests are the files of the objects that the demo creates.
//
//go:embed manifests
var manifests embed.FS

// in returns the client of a resource. Namespaced resources are in the demo's namespace.
func (s *stage) in(r gvr) dynamic.ResourceInterface {
	if r == namespaces || r == definitions {
		return s.client.Resource(r)
	}
	return s.client.Resource(r).Namespace(demoNamespace)
}

// step is one action of an act.
type step = func(context.Context, *stage) error

// create creates the object in a manifest. If the resource was only just defined, it waits until the API
// server serves the resource.
func create(r gvr, manifest string) step {
	return func(ctx context.Context, s *stage) error {
		text, err := manifests.ReadFile("manifests/" + manifest)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return err
		}
		return poll.Until(ctx, patience, manifest+" is created", func(ctx context.Context) error {
			_, err := s.in(r).Create(ctx, o, metav1.CreateOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				s.fail(err)
			}
			return err
		})
	}
}

// patch changes an object with a JSON merge patch (RFC 7386).
func patch(r gvr, name, patch string, subresources ...string) step {
	return func(ctx context.Context, s *stage) error {
		_, err := s.in(r).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func remove(r gvr, name string) step {
	return func(ctx context.Context, s *stage) error { return s.in(r).Delete(ctx, name, metav1.DeleteOptions{}) }
}

// removeOnePod deletes one Pod of the Deployment.
func removeOnePod(ctx context.Context, s *stage) error {
	list, err := s.in(pods).List(ctx, metav1.ListOptions{LabelSelector: "app=web", Limit: 1})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return errors.New("no Pod of the Deployment exists")
	}
	return remove(pods, list.Items[0].GetName())(ctx, s)
}

func all(steps ...step) step {
	return func(ctx context.Context, s *stage) error {
		for _, do := range steps {
			if err := do(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// versions returns the version of every watched object in the cluster.
func versions(ctx context.Context, client dynamic.Interface) (map[string]string, error) {
	found := map[string]string{}
	for _, r := range []gvr{namespaces, deployments, replicaSets, pods, roles, definitions, widgets} {
		list, err := client.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: watchedLabels})
		if apierrors.IsNotFound(err) {
			continue // the demo has not defined the resource yet, or has deleted it
		}
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			found[objectName(r.GroupResource().String(), o.GetNamespace(), o.GetName())] = o.GetResourceVersion()
		}
	}
	return found, nil
}

// pretendKubelet reports every Pod as running until ctx ends. The demo has no nodes, and a Deployment
// rolls out only if its Pods run. pretendKubelet retries failed requests.
func pretendKubelet(ctx context.Context, client dynamic.Interface) {
	for ; ctx.Err() == nil; wait(ctx, 4*interval) {
		list, err := client.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		if err != nil {
			continue
		}
		for _, pod := range list.Items {
			_, _ = client.Resource(pods).Namespace(pod.GetNamespace()).
				Patch(ctx, pod.GetName(), types.MergePatchType, runningStatus(&pod, time.Now()), metav1.PatchOptions{}, "status")
		}
	}
}

// runningStatus returns a patch with the fields that kubectl and the controllers read.
func runningStatus(pod *unstructured.Unstructured, now time.Time) []byte {
	type object = map[string]any
	at := now.UTC().Format(time.RFC3339)
	var conditions, statuses []any
	for _, t := range []string{"PodScheduled", "Initialized", "ContainersReady", "Ready"} {
		conditions = append(conditions, object{"type": t, "status": "True", "lastTransitionTime": at})
	}
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, c := range containers {
		c, _ := c.(object)
		statuses = append(statuses, object{
			"name": c["name"], "image": c["image"], "imageID": "", "ready": true, "started": true, "restartCount": 0,
			"state": object{"running": object{"startedAt": at}},
		})
	}
	patch, _ := json.Marshal(object{"status": object{ // these types can always be encoded
		"phase": "Running", "startTime": at, "conditions": conditions, "containerStatuses": statuses,
	}})
	return patch
}
