package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/hack/bench/pods"
)

const (
	// liveNamespace has the objects that are changed while a first sync is running: a
	// subscriber can ask for those alone. emptyNamespace is for those who watch nothing.
	liveNamespace, emptyNamespace = "live", "empty"
	liveObjects                   = 100 // pods, among those of the cluster, and as many configmaps

	fillers = 16 // requests at once: they wait for etcd most of the time
)

// fill creates the pods from one number to another. A pod is created and then given its
// status, each under the name of the manager that does it in a real cluster: what they
// and kubectl leave in managedFields is then what an API server makes of it.
func fill(ctx context.Context, config *rest.Config, from, to int, log io.Writer) error {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if from == 0 {
		if err := createSurroundings(ctx, client); err != nil {
			return err
		}
	}
	var done atomic.Int64
	stop := every(10*time.Second, func() { fmt.Fprintf(log, "  %d of %d pods\n", from+int(done.Load()), to) })
	defer stop()
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(fillers)
	for i := from; i < to && ctx.Err() == nil; i++ {
		all.Go(func() error {
			defer done.Add(1)
			return createPod(ctx, client, i)
		})
	}
	return all.Wait()
}

// every calls f again and again until the function is called that it returns.
func every(interval time.Duration, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func createSurroundings(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range append(pods.Namespaces(), liveNamespace, emptyNamespace) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for i := range liveObjects {
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: liveConfigMap(i)}, Data: map[string]string{"config.yaml": fmt.Sprintf("replicas: %d\n", i)}}
		if _, err := client.CoreV1().ConfigMaps(liveNamespace).Create(ctx, settings, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func liveConfigMap(i int) string { return fmt.Sprintf("settings-%d", i) }

// pod is the i-th pod of the cluster.
func pod(i int) *corev1.Pod {
	p := pods.Pod(seed, i)
	if i < liveObjects {
		p.Namespace = liveNamespace
	}
	return p
}

func createPod(ctx context.Context, client kubernetes.Interface, i int) error {
	wanted := pod(i)
	api := client.CoreV1().Pods(wanted.Namespace)
	created, err := api.Create(ctx, wanted, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return err
	}
	created.Status = wanted.Status
	if _, err := api.UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
		return err
	}
	if !pods.Touched(i) {
		return nil
	}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"debug":"ticket-%d"}}}`, i)
	_, err = api.Patch(ctx, wanted.Name, types.MergePatchType, label, metav1.PatchOptions{FieldManager: "kubectl-label"})
	return err
}
