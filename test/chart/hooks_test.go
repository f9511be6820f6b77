package chart

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// runPod runs the forwarder like the only container of a hook's pod. The replacer replaces DNS
// names in the arguments.
func runPod(t *testing.T, pod *corev1.Pod, hosts *strings.Replacer) (stderr string, err error) {
	args := []string{"-i"}
	for _, v := range pod.Spec.Containers[0].Env {
		args = append(args, v.Name+"="+v.Value)
	}
	args = append(args, binary)
	for _, arg := range pod.Spec.Containers[0].Args {
		args = append(args, hosts.Replace(arg))
	}
	out, stderr, err := run(context.WithoutCancel(t.Context()), "", "env", args...)
	return out + stderr, err
}

// runHooks does the work of a kubelet: it runs the pods that Helm creates in the namespace.
func (s *apiServer) runHooks(t *testing.T, namespace string, hosts *strings.Replacer) {
	t.Helper()
	buildForwarder(t)
	pods := s.client.CoreV1().Pods(namespace)
	created, err := pods.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for event := range created.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type != watch.Added || pod.Status.Phase != corev1.PodPending {
				continue
			}
			pod.Status.Phase = corev1.PodSucceeded
			if stderr, err := runPod(t, pod, hosts); err != nil {
				pod.Status.Phase, pod.Status.Message = corev1.PodFailed, stderr
			}
			if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Errorf("pod %s: %v", pod.Name, err)
			}
		}
	})
	t.Cleanup(func() {
		created.Stop()
		wait.Wait()
	})
}

// hookPod returns the pod of the hook with the given name, or nil.
func (m manifests) hookPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	for _, o := range m.of("Pod") {
		if o.GetName() == name {
			pod := convert[corev1.Pod](t, o)
			return &pod
		}
	}
	return nil
}

// TestConfigCheck_Slow verifies that a pod finds the mistakes that the chart can't find, before an
// installation or an upgrade changes anything.
func TestConfigCheck_Slow(t *testing.T) {
	buildForwarder(t)
	for name, c := range map[string]struct{ wrong, right any }{
		"namespaceSelector": {"team in (", "team in (a,b)"},
		"follow":            {[]string{"pods:a:b"}, []string{"ownerReferences"}},
		"labelSelector":     {"app in (", "app=web,tier!=test"},
		"fieldSelector":     {"web", "metadata.name=web"},
		"filter":            {"object.x ==", `object.metadata.name != "a"`},
		"dropFields":        {[]string{"pods:.a["}, []string{"pods:.status"}},
		"hashFields":        {"pods:.a[", "pods:.spec"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(x any) (string, error) {
				m := render(t, "kuberelay", values{"config": values{"resources": "pods", "sink": "kafka", "kafkaBrokers": "kafka", name: x}})
				pod := m.hookPod(t, "kr-kuberelay-config")
				if pod == nil {
					t.Fatal("there is no pod that checks it")
				}
				return runPod(t, pod, strings.NewReplacer())
			}
			variable := "KUBERELAY_" + strings.ToUpper(strings.NewReplacer("Selector", "_Selector", "Fields", "_Fields").Replace(name))
			if stderr, err := check(c.wrong); err == nil || !strings.Contains(stderr, variable) || strings.Count(stderr, "KUBERELAY_") != 1 {
				t.Errorf("%v: got %v, %s, want an error of %s alone", c.wrong, err, stderr, variable)
			}
			if stderr, err := check(c.right); err != nil {
				t.Errorf("%v: %v, %s", c.right, err, stderr)
			}
		})
	}

	s := newAPIServer(t)
	namespace := s.namespace(t, "check", restricted)
	s.runHooks(t, namespace, strings.NewReplacer())
	pods, sets := s.client.CoreV1().Pods(namespace), s.client.AppsV1().StatefulSets(namespace)
	failed := func(variable string, args ...string) {
		t.Helper()
		if err := s.tryHelm(t, namespace, "", args...); err == nil || !strings.Contains(err.Error(), "kr-kuberelay-config failed") {
			t.Fatalf("helm %v: got %v, want a failed check", args, err)
		}
		pod, err := pods.Get(t.Context(), "kr-kuberelay-config", metav1.GetOptions{})
		if err != nil || !strings.Contains(pod.Status.Message, variable) {
			t.Errorf("helm %v: the check says %q (%v), want %s in it", args, pod.Status.Message, err, variable)
		}
	}
	failed("KUBERELAY_FILTER", "install", "kr", chart, "--set", "config.resources=pods,config.filter=object.")
	if _, err := sets.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the StatefulSet: got %v, want not found", err)
	}
	helm := s.helm(t, namespace)
	helm("", "uninstall", "kr")
	helm("", "install", "kr", chart, "--set", "config.resources=pods,config.filter=has(object.metadata)")
	t.Cleanup(func() { helm("", "uninstall", "kr") })
	before, err := sets.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(t.Context(), "kr-kuberelay-config", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod of a check without mistakes: got %v, want it gone", err)
	}
	failed("KUBERELAY_LABEL_SELECTOR", "upgrade", "kr", chart, "--reuse-values", "--set", "config.labelSelector=a in (")
	if after, err := sets.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{}); err != nil || after.Generation != before.Generation {
		t.Errorf("the StatefulSet has generation %d (%v), want %d", after.Generation, err, before.Generation)
	}
}

// TestHelmTest_Slow verifies that helm test succeeds while the forwarder reports that all is well, and
// fails if the forwarder doesn't respond.
func TestHelmTest_Slow(t *testing.T) {
	s := newAPIServer(t)
	namespace := s.namespace(t, "test", restricted)
	address := freeAddress(t)
	v := values{
		"config":   values{"resources": "configmaps", "namespaces": namespace, "clusterName": namespace, "sink": "stdout", "listenAddr": address},
		"helmTest": values{"wait": "5s"},
	}
	s.create(t, namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: selected}}`) // otherwise the verdict is a warning
	m := render(t, namespace, v)
	s.runHooks(t, namespace, strings.NewReplacer("kr-kuberelay."+namespace+".svc:8080", address))
	helm := s.helm(t, namespace)
	helm(v.yaml(t), "install", "kr", chart, "--values", "-")
	t.Cleanup(func() { helm("", "uninstall", "kr") })
	f := start(t, m.environment(t), s.kubeconfig(t, namespace, m.podTemplate(t).Spec.ServiceAccountName, m))
	poll.Try(t, "the forwarder reports that all is well", func(ctx context.Context) error {
		code, out, stderr, err := f.Run(ctx, "status", "--address="+address)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s%s", code, out, stderr)
		}
		return err
	})
	helm("", "test", "kr")
	stop(t, f)
	if err := s.tryHelm(t, namespace, "", "test", "kr"); err == nil || !strings.Contains(err.Error(), "kr-kuberelay-test failed") {
		t.Errorf("without a forwarder: got %v, want a failed test", err)
	}
}

// TestHooksAreApart verifies that no selector of the chart matches a hook's pod. So the pod
// receives no traffic, and no disruption budget counts it.
func TestHooksAreApart(t *testing.T) {
	m := render(t, "kuberelay", values{"config": values{"resources": "pods", "filter": "true"}, "commonLabels": values{"app.kubernetes.io/name": "kuberelay"}})
	selected := m.podTemplate(t).Labels["app.kubernetes.io/name"]
	for _, name := range []string{"kr-kuberelay-config", "kr-kuberelay-test"} {
		pod := m.hookPod(t, name)
		if pod == nil {
			t.Fatalf("there is no %s", name)
		}
		if got := pod.Labels["app.kubernetes.io/name"]; got == selected || got == "" {
			t.Errorf("%s has the label of the pods that are selected, %q", name, got)
		}
		if mounts := pod.Spec.AutomountServiceAccountToken; mounts == nil || *mounts || len(pod.Spec.Volumes) > 0 {
			t.Errorf("%s has credentials", name)
		}
	}
}
