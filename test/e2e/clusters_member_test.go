package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// shared is a namespace that exists in every cluster and contains objects with the same names.
const shared = "shared"

// member is one of the clusters on a bus, with its own real control plane. Only the test changes its
// ConfigMaps.
type member struct {
	*user
	name string
	uid  string // the UID of the namespace kube-system
	cp   *controlplane.ControlPlane
}

func newMember(t *testing.T, name string) *member {
	t.Helper()
	cp := controlplanetest.New(t, controlplane.Options{})
	m := &member{user: newUser(t, cp), name: name, cp: cp}
	m.create(gvr("", "v1", "namespaces"), "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+shared+"}")
	poll.Try(t, "the namespace kube-system exists", func(ctx context.Context) error {
		o, err := m.client.Resource(gvr("", "v1", "namespaces")).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			m.uid = string(o.GetUID())
		}
		return err
	})
	return m
}

// change makes the nth change to one of a few objects. The objects have the same names in every
// member.
func (m *member) change(ctx context.Context, n int) error {
	const names = 7
	name := fmt.Sprintf("c%d", n%names)
	of := m.of(configMaps, shared)
	if n/names%5 == 4 {
		return of.Delete(ctx, name, metav1.DeleteOptions{})
	}
	patch, _ := json.Marshal(map[string]any{"data": map[string]string{"by": m.name, "n": fmt.Sprint(n)}})
	_, err := of.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"by": m.name, "n": fmt.Sprint(n)},
		}}
		_, err = of.Create(ctx, o, metav1.CreateOptions{})
	}
	return err
}

// in returns the same cluster for a subtest, without the ConfigMaps of earlier subtests.
func (m *member) in(t *testing.T) *member {
	t.Helper()
	u := newUser(t, m.cp)
	if err := u.of(configMaps, shared).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return &member{user: u, name: m.name, uid: m.uid, cp: m.cp}
}
