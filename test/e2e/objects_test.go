package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// user changes the cluster through its API, as kubectl does.
type user struct {
	t      *testing.T
	client dynamic.Interface
}

func newUser(t *testing.T, cp *controlplane.ControlPlane) *user {
	t.Helper()
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &user{t, client}
}

func (u *user) of(gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return u.client.Resource(gvr)
	}
	return u.client.Resource(gvr).Namespace(namespace)
}

// create creates the object in a manifest.
func (u *user) create(gvr schema.GroupVersionResource, namespace, manifest string) *unstructured.Unstructured {
	u.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		u.t.Fatal(err)
	}
	created, err := u.of(gvr, namespace).Create(u.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatalf("create %s: %v", gvr.Resource, err)
	}
	return created
}

// label changes a label of an object.
func (u *user) label(gvr schema.GroupVersionResource, namespace, name, value string) *unstructured.Unstructured {
	u.t.Helper()
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"changed": value}}})
	o, err := u.of(gvr, namespace).Patch(u.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		u.t.Fatalf("change %s %s: %v", gvr.Resource, name, err)
	}
	return o
}

// inVersion returns the state of an object at an earlier resourceVersion.
func (u *user) inVersion(gvr schema.GroupVersionResource, namespace, name, version string) *unstructured.Unstructured {
	u.t.Helper()
	list, err := u.of(gvr, namespace).List(u.t.Context(), metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", name).String(),
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if err != nil || len(list.Items) != 1 {
		u.t.Fatalf("%s %s in version %s: got %v, %v", gvr.Resource, name, version, list, err)
	}
	return &list.Items[0]
}

// delete deletes an object and waits until it is gone.
func (u *user) delete(gvr schema.GroupVersionResource, namespace, name string) {
	u.t.Helper()
	if err := u.of(gvr, namespace).Delete(u.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		u.t.Fatalf("delete %s %s: %v", gvr.Resource, name, err)
	}
	poll.Try(u.t, gvr.Resource+" "+name+" is gone", func(ctx context.Context) error {
		_, err := u.of(gvr, namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errStillThere
	})
}

// letRead grants the user "little" get, list and watch on core resources in a namespace. The
// argument lists the resources as in a JSON array, without the brackets. The returned function
// replaces the granted resources.
func (u *user) letRead(namespace, resources string) (instead func(resources string)) {
	u.t.Helper()
	roles := gvr("rbac.authorization.k8s.io", "v1", "roles")
	rules := func(resources string) string {
		return `"rules": [{"apiGroups": [""], "resources": [` + resources + `], "verbs": ["get", "list", "watch"]}]}`
	}
	u.create(roles, namespace, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"}, `+rules(resources))
	u.create(gvr("rbac.authorization.k8s.io", "v1", "rolebindings"), namespace, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]`)
	return func(resources string) {
		u.t.Helper()
		if _, err := u.of(roles, namespace).Patch(u.t.Context(), "reader", types.MergePatchType, []byte("{"+rules(resources)), metav1.PatchOptions{}); err != nil {
			u.t.Fatal(err)
		}
	}
}

// awaitAccess waits until the user "little" may list a resource, or may not if allowed is false. The
// API server's authorizer sees a changed role later than the client that changed it.
func awaitAccess(t *testing.T, cp *controlplane.ControlPlane, of schema.GroupVersionResource, namespace string, allowed bool) {
	t.Helper()
	client, err := dynamic.NewForConfig(cp.ConfigFor("little"))
	if err != nil {
		t.Fatal(err)
	}
	poll.Try(t, fmt.Sprintf("access to %s is %t", of.Resource, allowed), func(ctx context.Context) error {
		_, err := client.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case allowed || err != nil && !apierrors.IsForbidden(err):
			return err
		case err == nil:
			return errors.New("it is not refused")
		}
		return nil
	})
}

var errStillThere = apierrors.NewConflict(schema.GroupResource{}, "", nil)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	planets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "planets"}
)

func definition(plural, kind, scope string) string {
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + `.example.com}
spec:
  group: example.com
  scope: ` + scope + `
  names: {plural: ` + plural + `, singular: ` + plural[:len(plural)-1] + `, kind: ` + kind + `}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
}

// define creates a CustomResourceDefinition and waits until the API server serves its objects. The
// definition is deleted at the end of the test.
func (u *user) define(plural, kind, scope string) {
	u.t.Helper()
	name := plural + ".example.com"
	poll.Try(u.t, name+" of an earlier test is gone", func(ctx context.Context) error {
		o, err := u.of(definitions, "").Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && o.GetDeletionTimestamp() == nil: // if the definition stays, create fails and reports its name
			return nil
		case err == nil:
			err = errStillThere
		}
		return err
	})
	u.create(definitions, "", definition(plural, kind, scope))
	u.t.Cleanup(func() {
		_ = u.client.Resource(definitions).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
	poll.Try(u.t, plural+" are served", func(ctx context.Context) error {
		_, err := u.client.Resource(gvr).List(ctx, metav1.ListOptions{})
		return err
	})
}

func configMap(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {value: \"" + value + "\"}\n"
}

// asPublished returns the data that an event for o contains, that is, the object without the fields
// that are never published.
func asPublished(o *unstructured.Unstructured) map[string]any {
	c := o.DeepCopy()
	unstructured.RemoveNestedField(c.Object, "metadata", "managedFields")
	annotations := c.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	unstructured.RemoveNestedField(c.Object, "metadata", "annotations")
	if len(annotations) > 0 {
		c.SetAnnotations(annotations)
	}
	text, _ := json.Marshal(c.Object)
	var plain map[string]any
	_ = json.Unmarshal(text, &plain)
	return plain
}

// inParallel calls do for 0 to n-1, with at most eight calls at a time.
func inParallel(t *testing.T, n int, do func(int)) {
	t.Helper()
	group, _ := errgroup.WithContext(context.Background())
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error { do(i); return nil })
	}
	_ = group.Wait()
}
