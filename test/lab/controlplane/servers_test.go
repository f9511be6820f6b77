package controlplane_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

var flunders = schema.GroupVersionResource{
	Group: controlplane.AggregatedGroup, Version: controlplane.AggregatedVersion, Resource: "flunders"}

func createFlunder(t *testing.T, client dynamic.Interface, name string) *unstructured.Unstructured {
	t.Helper()
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": flunders.GroupVersion().String(), "kind": "Flunder", "metadata": map[string]any{"name": name},
	}}
	created, err := client.Resource(flunders).Namespace("default").Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func flunderNames(t *testing.T, client dynamic.Interface) []string {
	t.Helper()
	list, err := client.Resource(flunders).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return names
}

func TestAggregated_Slow(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{Aggregated: true})
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.RegisterAggregated(t.Context()); err != nil {
		t.Fatal(err)
	}
	createFlunder(t, client, "one")
	backup := filepath.Join(t.TempDir(), "backup")
	if err := cp.SnapshotAggregated(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	if err := cp.AwaitAggregated(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := createFlunder(t, client, "two")

	if err := cp.UnregisterAggregated(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "flunders are not served", func(ctx context.Context) (bool, error) {
		_, err := client.Resource(flunders).List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err := cp.RegisterAggregated(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := flunderNames(t, client); len(got) != 2 {
		t.Errorf("after the APIService came back: got flunders %v, want both", got)
	}

	for _, test := range []struct {
		name   string
		change func() error
		want   int
	}{
		{"restored", func() error { return cp.RestoreAggregated(t.Context(), backup) }, 1},
		{"replaced", func() error { return cp.ReplaceAggregatedStorage(t.Context()) }, 0},
	} {
		if err := test.change(); err != nil {
			t.Fatal(err)
		}
		if err := cp.AwaitAggregated(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := flunderNames(t, client); len(got) != test.want {
			t.Errorf("%s: got flunders %v, want %d", test.name, got, test.want)
		}
	}
	again := createFlunder(t, client, "again")
	if got, former := resourceVersion(t, again), resourceVersion(t, last); got >= former {
		t.Errorf("got resourceVersion %d, want one before %d: the history has not gone back", got, former)
	}
}

func resourceVersion(t *testing.T, object metav1.Object) int {
	t.Helper()
	version, err := strconv.Atoi(object.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// serves reports whether the API server that the next connection reaches serves deployments.
func serves(t *testing.T, config *rest.Config) bool {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an API server answers", func(ctx context.Context) (bool, error) { // the client may not have noticed yet that its connection is broken
		_, err = client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		return err == nil || apierrors.IsNotFound(err), nil
	})
	return err == nil
}

func TestTwoAPIServersBehindOneAddress_Slow(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{})
	link := faultproxy.Start(t, cp.EtcdAddress())
	second, err := cp.AddAPIServer(t.Context(), "--runtime-config=apps/v1=false", "--etcd-servers=http://"+link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	config := cp.Config()
	balancer := faultproxy.Start(t, cp.Address())
	config.Host = "https://" + balancer.Addr()
	if !serves(t, config) {
		t.Error("the first API server does not serve deployments")
	}
	balancer.Direct(second.Address())
	if !serves(t, config) {
		t.Error("an open connection has moved")
	}
	balancer.Break()
	if serves(t, config) {
		t.Error("the second API server serves deployments")
	}

	link.Freeze()
	defer link.Pass()
	createConfigMap(t, clientset(t, cp.Config()), "default", "new")
	config.Timeout = time.Minute
	lagging := clientset(t, config).CoreV1().ConfigMaps("default")
	if _, err := lagging.Get(t.Context(), "new", metav1.GetOptions{ResourceVersion: "0"}); !apierrors.IsNotFound(err) {
		t.Errorf("the second API server's cache, cut off from etcd: got error %v, want not found", err)
	}

	if err := second.Remove(); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "etcd")
	if err := errors.Join(cp.SnapshotEtcd(t.Context(), backup), cp.RestoreEtcd(t.Context(), backup)); err != nil {
		t.Fatal(err)
	}
	if second.Running() {
		t.Error("a removed API server was started again")
	}
}
