package chart

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// helm returns a function that runs Helm in the namespace and fails the test if Helm fails.
func (s *apiServer) helm(t *testing.T, namespace string) func(stdin string, args ...string) {
	return func(stdin string, args ...string) {
		t.Helper()
		if err := s.tryHelm(t, namespace, stdin, args...); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *apiServer) tryHelm(t *testing.T, namespace, stdin string, args ...string) error {
	t.Helper()
	args = append([]string{"--kubeconfig", s.Kubeconfig(), "--namespace", namespace}, args...)
	out, stderr, err := run(context.Background(), stdin, tool(t, "helm"), args...)
	if err != nil {
		return fmt.Errorf("helm %v: %w\n%s%s", args, err, out, stderr)
	}
	return nil
}

// TestUpgrade verifies that the values of the first release still install the chart. They need one
// additional value, which the error names. An upgrade that changes one value keeps the others.
// Never change testdata/values-0.1.0.yaml: it shows whether a later chart still accepts existing
// values.
func TestUpgrade(t *testing.T) {
	s := newAPIServer(t)
	namespace := s.namespace(t, "upgrade", restricted)
	s.runHooks(t, namespace, strings.NewReplacer()) // the values have a selector, which a hook checks
	first := string(read(t, "testdata/values-0.1.0.yaml"))
	const fix = "rbac.groupsWithSubresources={cert-manager.io}"
	if err := s.tryHelm(t, namespace, first, "install", "kr", chart, "--values", "-"); err == nil || !strings.Contains(err.Error(), fix) {
		t.Fatalf("got %v, want an error with %s", err, fix)
	}
	helm := s.helm(t, namespace)
	helm(first, "install", "kr", chart, "--values", "-", "--set", fix)
	t.Cleanup(func() { helm("", "uninstall", "kr") })
	environment := func() map[string]string {
		t.Helper()
		d, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return environment(t, d.Spec.Template.Spec)
	}
	before := environment()
	helm("", "upgrade", "kr", chart, "--reuse-values", "--set", "config.logLevel=debug")
	after := environment()
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was %q and is %q", name, text, after[name])
		}
	}
	if len(after) != len(before)+1 || after["KUBERELAY_LOG_LEVEL"] != "debug" {
		t.Errorf("got %v after %v, want KUBERELAY_LOG_LEVEL=debug beside it", after, before)
	}
}

// TestUpgradeKeepsTheLease_Slow verifies that neither an upgrade nor a new installation changes the
// Lease of a running forwarder, whether the chart or an earlier forwarder created it.
func TestUpgradeKeepsTheLease_Slow(t *testing.T) {
	s := newAPIServer(t)
	for name, existed := range map[string]bool{"of the chart": false, "of a forwarder": true} {
		t.Run(name, func(t *testing.T) {
			namespace := s.namespace(t, "upgrade", restricted)
			leases := s.client.CoordinationV1().Leases(namespace)
			holder := "forwarder"
			if existed {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "kr-kuberelay"}}
				if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			helm := s.helm(t, namespace)
			install := []string{"install", "kr", chart, "--set", "config.resources={pods},config.natsUrl={nats://nats:4222}"}
			helm("", install...)
			lease, err := leases.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			lease.Spec.HolderIdentity = &holder
			if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"upgrade", "kr", chart, "--reuse-values", "--set", "commonLabels.a=b"}, {"uninstall", "kr"}, install, {"uninstall", "kr"},
			} {
				helm("", args...)
				lease, err = leases.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
				if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != holder {
					t.Fatalf("after helm %v: got holder %v, %v", args, lease.Spec.HolderIdentity, err)
				}
			}
		})
	}
}

// TestNamespaceOverride verifies a release whose objects are in another namespace. It grants the
// same permissions to the service account there, keeps its Lease during an upgrade, and leaves only
// the Lease behind.
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
		"":      {"get namespaces/kube-system", "get,list namespaces/" + watched, "get,list,watch customresourcedefinitions.apiextensions.k8s.io", "get,list,watch nodes", "list,watch apiservices.apiregistration.k8s.io"},
		pods:    ofLease,
		watched: {"get,list,watch pods"},
	}
	if diff := cmp.Diff(want, granted(t, m, subject)); diff != "" {
		t.Errorf("permissions by namespace (-want +got):\n%s", diff)
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
		t.Errorf("at the end, the Lease is %v (%v), want %v", last.UID, err, first.UID)
	}
	if left, err := s.client.AppsV1().Deployments(pods).List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Errorf("%d Deployments are left (%v)", len(left.Items), err)
	}
}
