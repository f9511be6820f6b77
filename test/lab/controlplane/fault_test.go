package controlplane_test

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

func createConfigMap(t *testing.T, client kubernetes.Interface, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	created, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func TestKillAndStartAPIServer(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client := clientset(t, cp.Config()) // used before and after, because the port and the certificate stay the same
	createConfigMap(t, client, namespace, "kept")
	for _, test := range []struct {
		name string
		down func() error
	}{
		{"kill", cp.KillAPIServer},
		{"stop", func() error { return cp.StopAPIServer(t.Context()) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.down(); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Discovery().ServerVersion(); err == nil {
				t.Error("a killed API server responds")
			}
			if err := cp.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := cp.StartAPIServer(t.Context()); err == nil {
		t.Error("starts a second API server")
	}
}

func TestKillAndStartEtcd(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client := clientset(t, cp.Config())
	createConfigMap(t, client, namespace, "kept")
	if err := cp.KillEtcd(); err != nil {
		t.Fatal(err)
	}
	if err := cp.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server finds etcd again", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "kept", metav1.GetOptions{})
		return err == nil, nil
	})
}

func TestPauseAPIServer(t *testing.T) {
	cp := cluster.ControlPlane(t)
	config := cp.Config()
	config.Timeout = time.Second
	client := clientset(t, config)
	if err := cp.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	// The signal takes a moment to reach every thread.
	eventually(t, "the paused API server does not respond", func(context.Context) (bool, error) {
		_, err := client.Discovery().ServerVersion()
		return err != nil, nil
	})
	if err := cp.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the resumed API server answers", func(context.Context) (bool, error) {
		_, err := client.Discovery().ServerVersion()
		return err == nil, nil
	})
}

func TestCompactionExpiresOldVersions(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	client := clientset(t, cp.Config())
	maps := client.CoreV1().ConfigMaps(namespace)
	old := createConfigMap(t, client, namespace, "old").ResourceVersion
	createConfigMap(t, client, namespace, "new")
	if err := cp.CompactEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := maps.List(t.Context(), metav1.ListOptions{
		ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("list at an old version: got error %v, want 410 expired", err)
	}
	err = watchError(t.Context(), func(ctx context.Context) (watch.Interface, error) {
		return maps.Watch(ctx, metav1.ListOptions{ResourceVersion: old})
	})
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old version: got error %v, want 410 expired", err)
	}
}

// watchError starts a watch and returns its error if the watch fails to start or begins with an error
// event. Otherwise it returns nil.
func watchError(ctx context.Context, start func(context.Context) (watch.Interface, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	watcher, err := start(ctx)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	event, ok := <-watcher.ResultChan()
	if !ok || event.Type != watch.Error {
		return nil
	}
	return apierrors.FromObject(event.Object)
}

func TestRestoreTakesTheClusterBack(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{})
	client := clientset(t, cp.Config())
	createConfigMap(t, client, "default", "before")
	backup := filepath.Join(t.TempDir(), "backup")
	if err := cp.SnapshotEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	var after *corev1.ConfigMap
	for i := range 20 {
		after = createConfigMap(t, client, "default", "after-"+strconv.Itoa(i))
	}
	if err := cp.RestoreEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	if _, err := maps.Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Errorf("get the object in the backup: %v", err)
	}
	if _, err := maps.Get(t.Context(), after.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the object that was created after the backup: got error %v, want not found", err)
	}
	again := createConfigMap(t, client, "default", "again")
	got, _ := strconv.Atoi(again.ResourceVersion)
	if former, _ := strconv.Atoi(after.ResourceVersion); got > former {
		t.Errorf("got resourceVersion %d, want one before %d: the history has not gone back", got, former)
	}
}
