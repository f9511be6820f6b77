package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kuberelay/kuberelay/hack/bench/pods"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestKubeStateMetrics_Slow runs two processes of kube-state-metrics. One lists and watches a replica of
// the bus, the other the API server. Their metrics must be identical, even after the forwarder was
// killed.
func TestKubeStateMetrics_Slow(t *testing.T) {
	program := buildProgram(t, "-C", "../kubestatemetrics", ".")
	server := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), server.URL, map[string]string{"RESOURCES": "pods,deployments.apps", "NAMESPACES": namespace})
	addresses := map[string]string{}
	for on, environment := range map[string]string{"the bus": "NATS_URL=" + server.URL, "the API server": "KUBECONFIG=" + cp.Kubeconfig()} {
		if addresses[on], err = harness.FreePort(); err != nil {
			t.Fatal(err)
		}
		process(t, nil, []string{environment, "NAMESPACE=" + namespace, "ADDRESS=" + addresses[on]}, program)
	}
	equal := func(when string) {
		t.Helper()
		poll.Try(t, "kube-state-metrics on the bus equals that on the API server "+when, func(ctx context.Context) error {
			list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			want, err := scrape(ctx, addresses["the API server"])
			if err != nil {
				return err
			}
			got, err := scrape(ctx, addresses["the bus"])
			if err != nil {
				return err
			}
			if n := count(want, "kube_pod_info{"); n != len(list.Items) || count(want, "kube_deployment_created{") == 0 {
				return fmt.Errorf("the metrics have %d pods of %d", n, len(list.Items))
			}
			return difference(got, want)
		})
	}

	const several = 20
	created := client.CoreV1().Pods(namespace)
	for i := range several {
		createPod(t, created, i)
	}
	for _, name := range []string{"kept", "scaled", "deleted"} {
		u.create(gvr("apps", "v1", "deployments"), namespace, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: "+name+"}, spec: {replicas: 2, "+
			"selector: {matchLabels: {app: "+name+"}}, template: {metadata: {labels: {app: "+name+"}}, spec: {containers: [{name: c, image: c}]}}}}")
	}
	f.start().idle()
	equal("after the start")

	f.kill()
	at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := errors.Join(
		created.Delete(t.Context(), podName(0), at),
		created.Delete(t.Context(), podName(1), at),
		client.AppsV1().Deployments(namespace).Delete(t.Context(), "deleted", metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	createPod(t, created, 1) // with a new UID
	if _, err := client.AppsV1().Deployments(namespace).Patch(t.Context(), "scaled", "application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.start().idle()
	equal("after a restart of the forwarder")
	createPod(t, created, several)
	equal("after a change")
	f.stop()
}

func podName(i int) string { return fmt.Sprintf("pod-%d", i) }

// createPod creates a pod and sets its status.
func createPod(t *testing.T, in typedcorev1.PodInterface, i int) {
	t.Helper()
	p := pods.Pod(7, i)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = "", "default", ""
	pod, err := in.Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil {
		pod.Status = p.Status
		_, err = in.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scrape returns the lines of the metrics, sorted.
func scrape(ctx context.Context, address string) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	lines := strings.Split(string(text), "\n")
	slices.Sort(lines)
	return lines, err
}

func count(lines []string, prefix string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func difference(got, want []string) error {
	if slices.Equal(got, want) {
		return nil
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("%d lines, want %d: %q, want %q", len(got), len(want), got[i], want[i])
		}
	}
	return fmt.Errorf("%d lines, want %d", len(got), len(want))
}
