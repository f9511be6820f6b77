package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestPodReplaced deletes an object between the end of a pod and the start of its replacement. The
// replacement has only the files that the chart's volume keeps. By default the volume keeps all
// files, so the forwarder publishes the delete and repeats no other event. With
// persistence.ephemeral the volume keeps no files, and the test verifies that the loss is the one
// that the documentation describes.
func TestPodReplaced(t *testing.T) {
	s := newAPIServer(t)
	for name, c := range map[string]struct {
		persistence values
		want        map[string]string // the events on the bus at the end, by object name
	}{
		"by default": {persistence: values{}, want: map[string]string{"deleted": "snapshot deleted", "same": "snapshot"}},
		"ephemeral":  {persistence: values{"ephemeral": true}, want: map[string]string{"same": "snapshot"}},
	} {
		t.Run(name, func(t *testing.T) {
			watched, release := s.namespace(t, "watched", nil), s.namespace(t, "kuberelay", restricted)
			bus := freeAddress(t)
			m := render(t, release, values{"persistence": c.persistence, "config": values{
				"resources": []string{"configmaps"}, "namespaces": []string{watched}, "clusterName": release,
				"natsListen": bus, "natsAllowAnonymous": true, "listenAddr": freeAddress(t),
			}})
			if err := s.apply(t, release, m); err != nil {
				t.Fatal(err)
			}
			pod := m.podTemplate(t).Spec
			kubeconfig := s.kubeconfig(t, release, pod.ServiceAccountName, m)
			env := m.environment(t)
			kept := keeps(t, pod, env["KUBERELAY_DATA_DIR"])
			env["KUBERELAY_DATA_DIR"] = t.TempDir() // only the path on this machine differs from the pod's

			s.create(t, watched, `{apiVersion: v1, kind: ConfigMap, metadata: {name: deleted}}`)
			s.create(t, watched, `{apiVersion: v1, kind: ConfigMap, metadata: {name: same}}`)
			f := start(t, env, kubeconfig)
			poll.Try(t, "all is on the bus", f.Idle)
			f.Kill()
			if err := s.client.CoreV1().ConfigMaps(watched).Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if !kept {
				env["KUBERELAY_DATA_DIR"] = t.TempDir()
			}
			f = start(t, env, kubeconfig)
			poll.Try(t, "all is on the bus again", f.Idle)
			recorder, err := harness.RecordNATS("nats://"+bus, "KUBERELAY")
			if err != nil {
				t.Fatal(err)
			}
			defer recorder.Close()
			poll.Try(t, "the events are on the bus", func(ctx context.Context) error { // the forwarder finds a missed delete after its first list
				if err := recorder.CatchUp(ctx, limit); err != nil {
					return err
				}
				all, _, err := recorder.All()
				if err != nil {
					return err
				}
				got := map[string]string{}
				for _, r := range all {
					if name, ok := r.Attributes["name"]; ok && r.Attributes["namespace"] == watched {
						got[name] = strings.TrimSpace(got[name] + " " + r.Kind())
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
			stop(t, f)
		})
	}
}

// keeps reports whether the volume that is mounted at the directory outlives the pod.
func keeps(t *testing.T, pod corev1.PodSpec, directory string) bool {
	t.Helper()
	for _, mount := range pod.Containers[0].VolumeMounts {
		if mount.MountPath != directory {
			continue
		}
		for _, v := range pod.Volumes {
			if v.Name == mount.Name {
				return v.PersistentVolumeClaim != nil
			}
		}
	}
	t.Fatalf("nothing is mounted at %q", directory)
	return false
}

// TestOnePodAtATime_Slow verifies that with the built-in bus, no pod starts before its predecessor is
// gone. It also verifies that an upgrade replaces a pod that never became ready.
func TestOnePodAtATime_Slow(t *testing.T) {
	s := connect(t, controlplanetest.New(t, controlplane.Options{ControllerManager: true}))
	namespace := s.namespace(t, "replaced", restricted)
	helm := s.helm(t, namespace)
	helm("", "install", "kr", chart, "--set", "config.resources={pods}")
	pods, sets := s.client.CoreV1().Pods(namespace), s.client.AppsV1().StatefulSets(namespace)
	only := func(ctx context.Context) (*corev1.Pod, error) {
		all, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(all.Items) != 1 {
			err = fmt.Errorf("there are %d pods", len(all.Items))
		}
		if err != nil {
			return nil, err
		}
		return &all.Items[0], nil
	}
	level := func(pod *corev1.Pod) string { return environment(t, pod.Spec)["KUBERELAY_LOG_LEVEL"] }
	await := func(what, logLevel string) *corev1.Pod {
		t.Helper()
		var pod *corev1.Pod
		poll.Try(t, what, func(ctx context.Context) (err error) {
			if pod, err = only(ctx); err == nil && level(pod) != logLevel {
				err = fmt.Errorf("its log level is %q, want %q", level(pod), logLevel)
			}
			return err
		})
		return pod
	}
	await("there is a pod", "")
	helm("", "upgrade", "kr", chart, "--reuse-values", "--set", "config.logLevel=debug") // the pod never becomes ready
	old := await("the pod was replaced", "debug")

	node, err := s.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: old.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := pods.Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Drain the node. The pod terminates until its kubelet confirms the end, and this cluster has
	// no kubelet.
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: old.Name}}
	poll.Try(t, "the pod is evicted", func(ctx context.Context) error { return pods.EvictV1(ctx, eviction) })
	helm("", "upgrade", "kr", chart, "--reuse-values", "--set", "config.logLevel=warn")
	poll.Try(t, "the controller has seen the upgrade", func(ctx context.Context) error {
		set, err := sets.Get(ctx, "kr-kuberelay", metav1.GetOptions{})
		if err == nil && set.Status.ObservedGeneration < set.Generation {
			err = errors.New("it has not")
		}
		return err
	})
	if pod, err := only(t.Context()); err != nil || pod.UID != old.UID || pod.DeletionTimestamp == nil {
		t.Fatalf("got %v (%v), want the old pod alone, terminating", pod, err)
	}
	now := int64(0)
	if err := pods.Delete(t.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	await("there is a new pod", "warn")
}

// TestClaimOutlives_Slow verifies that the built-in bus keeps the same claim in three cases: when the
// claim grows, when the bus moves out of the pod and back, and when the release is uninstalled and
// installed again.
func TestClaimOutlives_Slow(t *testing.T) {
	s := newAPIServer(t)
	namespace := s.namespace(t, "claim", restricted)
	grows := true
	class, err := s.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "grows-"}, Provisioner: "example.com/none", AllowVolumeExpansion: &grows,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	helm := s.helm(t, namespace)
	install := []string{"install", "kr", chart, "--set", "config.resources={pods},persistence.storageClass=" + class.Name}
	helm("", install...)
	claims := s.client.CoreV1().PersistentVolumeClaims(namespace)
	get := func() *corev1.PersistentVolumeClaim {
		t.Helper()
		claim, err := claims.Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}
	first := get()
	first.Status.Phase = corev1.ClaimBound
	if _, err := claims.UpdateStatus(t.Context(), first, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	kinds := func() string {
		t.Helper()
		_, deployment := s.client.AppsV1().Deployments(namespace).Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
		_, set := s.client.AppsV1().StatefulSets(namespace).Get(t.Context(), "kr-kuberelay", metav1.GetOptions{})
		if err := errors.Join(deployment, set); err != nil && !apierrors.IsNotFound(deployment) && !apierrors.IsNotFound(set) {
			t.Fatal(err)
		}
		return strings.TrimSpace(map[bool]string{true: "Deployment "}[deployment == nil] + map[bool]string{true: "StatefulSet"}[set == nil])
	}
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"upgrade", "kr", chart, "--reuse-values", "--set", "persistence.size=20Gi"}, "StatefulSet"},
		{[]string{"upgrade", "kr", chart, "--reuse-values", "--set", "config.natsUrl={nats://nats:4222}"}, "Deployment"},
		{[]string{"upgrade", "kr", chart, "--reuse-values", "--set-json", "config.natsUrl=[]"}, "StatefulSet"},
		{[]string{"uninstall", "kr"}, ""},
		{append(install, "--set", "persistence.size=20Gi"), "StatefulSet"},
	} {
		helm("", step.args...)
		if got := kinds(); got != step.want {
			t.Errorf("after helm %v there is %q, want %q", step.args, got, step.want)
		}
		claim := get()
		if claim.UID != first.UID || claim.DeletionTimestamp != nil || claim.Spec.Resources.Requests.Storage().String() != "20Gi" {
			t.Errorf("after helm %v the claim is %s, being deleted: %v, of %s; want %s of 20Gi", step.args,
				claim.UID, claim.DeletionTimestamp != nil, claim.Spec.Resources.Requests.Storage(), first.UID)
		}
	}
	helm("", "uninstall", "kr")
}
