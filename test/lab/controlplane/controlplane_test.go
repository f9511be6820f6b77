package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/test/lab/childprocess/childprocesstest"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var cluster = controlplanetest.Shared{Options: controlplane.Options{
	ControllerManager: true,
	Kwok:              true,
	Users:             map[string][]string{"carol": {"readers"}},
}}

func TestMain(m *testing.M) {
	childprocesstest.RunIfChild(startChild)
	os.Exit(cluster.Run(m))
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestVersion(t *testing.T) {
	info, err := clientset(t, cluster.ControlPlane(t).Config()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := version.ParseSemantic(info.GitVersion); err != nil {
		t.Errorf("kubectl cannot parse the server's version: %v", err)
	}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		t.Skip("with KUBEBUILDER_ASSETS, the version is not the pinned one")
	}
	want, err := controlplane.PinnedVersion()
	if err != nil {
		t.Fatal(err)
	}
	if info.GitVersion != want {
		t.Errorf("got version %s, want %s", info.GitVersion, want)
	}
}

func TestKubeconfig(t *testing.T) {
	cp := cluster.ControlPlane(t)
	info, err := os.Stat(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), os.FileMode(0o600); got != want {
		t.Errorf("got mode %v, want %v", got, want)
	}
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientset(t, config).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func TestUsersNeedRBAC(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	carol, err := clientcmd.BuildConfigFromFlags("", cp.KubeconfigFor("carol"))
	if err != nil {
		t.Fatal(err)
	}
	pods := clientset(t, carol).CoreV1().Pods(namespace)
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("without a role: got error %v, want forbidden", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	bindings := clientset(t, cp.Config()).RbacV1().RoleBindings(namespace)
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "carol may list pods", func(ctx context.Context) (bool, error) {
		_, err := pods.List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) { // the authorizer hasn't seen the binding yet
			return false, nil
		}
		return err == nil, err
	})
}

func podSpec(node string) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}}
}

func TestControllerManagerMakesPods(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client := clientset(t, cp.Config())
	replicas, labels := int32(2), map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("")},
		},
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deployment has its pods", func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == int(replicas), err
	})
}

func TestKwokRunsPods(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client := clientset(t, cp.Config())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	node, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is ready", func(ctx context.Context) (bool, error) {
		got, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(got.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), err
	})
	pods := client.CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: podSpec(node.Name)}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod runs", func(ctx context.Context) (bool, error) {
		got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && got.Status.Phase == corev1.PodRunning, err
	})
}

func TestStartErrorShowsLogAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got error %v, want one with what the API server said", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStop(t *testing.T) {
	var log bytes.Buffer
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	pids := cp.Pids()
	for range 2 {
		if err := cp.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		if childprocesstest.Alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
	if _, err := os.Stat(cp.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory still exists: %v", err)
	}
	if err := cp.StartAPIServer(t.Context()); err == nil {
		t.Error("an API server starts in a stopped control plane")
	}
	if strings.Contains(log.String(), "ended by itself") {
		t.Errorf("the log reports Stop as a failure: %s", log.String())
	}
}
