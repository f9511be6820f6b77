package chart

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUpgrade: the values of the first release install the chart, and an upgrade that
// changes one of them keeps the others. testdata/values-0.1.0.yaml is never changed,
// so that it shows whether a later chart still takes what people have.
func TestUpgrade(t *testing.T) {
	s := newAPIServer(t)
	namespace := s.namespace(t, "upgrade", restricted)
	first, err := os.ReadFile("testdata/values-0.1.0.yaml")
	if err != nil {
		t.Fatal(err)
	}
	helm := func(stdin string, args ...string) {
		t.Helper()
		args = append([]string{"--kubeconfig", s.Kubeconfig(), "--namespace", namespace}, args...)
		if out, stderr, err := run(t.Context(), stdin, tool(t, "helm"), args...); err != nil {
			t.Fatalf("helm %v: %v\n%s%s", args, err, out, stderr)
		}
	}
	helm(string(first), "install", "kr", chart, "--values", "-")
	t.Cleanup(func() {
		if out, stderr, err := run(t.Context(), "", tool(t, "helm"), "--kubeconfig", s.Kubeconfig(), "--namespace", namespace, "uninstall", "kr"); err != nil {
			t.Logf("helm uninstall: %v\n%s%s", err, out, stderr)
		}
	})
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
