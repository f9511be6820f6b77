package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNamespaceOverride: a release whose objects are in another namespace has the same rights,
// for the service account there, keeps its Lease in an upgrade, and leaves nothing but the
// Lease behind.
func TestNamespaceOverride(t *testing.T) {
	s := newAPIServer(t)
	release, pods, watched := s.namespace(t, "release", nil), s.namespace(t, "pods", restricted), s.namespace(t, "watched", nil)
	v := values{
		"namespaceOverride": pods,
		"commonAnnotations": values{"example.com/owner": "platform"},
		"extraObjects": []any{values{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": `{{ include "kuberelay.fullname" . }}-more`, "namespace": `{{ include "kuberelay.namespace" . }}`},
		}},
		"config": values{"resources": []string{"pods", "nodes"}, "namespaces": []string{watched}, "natsUrl": []string{"nats://nats:4222"}},
	}
	m := render(t, release, v)
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: "kr-kuberelay", Namespace: pods}
	want := map[string][]string{
		"":      {"get namespaces/kube-system", "get,list,watch customresourcedefinitions.apiextensions.k8s.io", "get,list,watch nodes", "list,watch apiservices.apiregistration.k8s.io"},
		pods:    ofLease,
		watched: {"get,list,watch pods"},
	}
	if diff := cmp.Diff(want, granted(t, m, subject)); diff != "" {
		t.Errorf("what may be done where (-want +got):\n%s", diff)
	}
	for _, o := range m {
		if o.GetAnnotations()["example.com/owner"] != "platform" && o.GetKind() != "ConfigMap" {
			t.Errorf("%s %s has the annotations %v", o.GetKind(), o.GetName(), o.GetAnnotations())
		}
	}

	helm := s.helm(t, release)
	helm(v.yaml(t), "install", "kr", chart, "--values", "-")
	leases := s.client.CoordinationV1().Leases(pods)
	first, err := leases.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.AppsV1().Deployments(pods).Get(t.Context(), "kr-kuberelay", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := s.client.CoreV1().ConfigMaps(pods).Get(t.Context(), "kr-kuberelay-more", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	helm("", "upgrade", "kr", chart, "--reuse-values", "--set", "config.logLevel=debug")
	helm("", "uninstall", "kr")
	if last, err := leases.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{}); err != nil || last.UID != first.UID {
		t.Errorf("after all this the Lease is %v (%v), want %v", last.UID, err, first.UID)
	}
	if left, err := s.client.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=kr"}); err != nil || len(left.Items) > 0 {
		t.Errorf("%d Deployments are left (%v)", len(left.Items), err)
	}
}
