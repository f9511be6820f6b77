package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/hack/bench/pods"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
)

const (
	seed = 7 // for every generated pod

	// liveNamespace has the objects that the benchmarks change: some of the cluster's pods, and the
	// same number of ConfigMaps. Contenders that must watch no object watch emptyNamespace.
	liveNamespace, emptyNamespace = "live", "empty"
	liveObjects                   = 100
)

// cluster is a control plane whose etcd is filled with pods.
type cluster struct {
	*controlplane.ControlPlane
	cache string // prefix of the paths of filled clusters
	has   int    // number of pods
	log   io.Writer
}

func startCluster(ctx context.Context, dir string, log io.Writer) (*cluster, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Log: log, EtcdFlags: []string{"--quota-backend-bytes=" + strconv.Itoa(16<<30)}})
	if err != nil {
		return nil, err
	}
	caches, err := os.UserCacheDir()
	if err == nil {
		err = os.MkdirAll(filepath.Join(caches, "kuberelay", "bench"), 0o755)
	}
	client, newErr := kubernetes.NewForConfig(cp.Config())
	if err = errors.Join(err, newErr); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	// The name has the version of the API server, because another version stores objects differently.
	cache := filepath.Join(caches, "kuberelay", "bench", fmt.Sprintf("pods-v%s-seed%d-%s", pods.Version, seed, version.GitVersion))
	return &cluster{ControlPlane: cp, cache: cache, log: log}, nil
}

func (c *cluster) filled(n int) string { return fmt.Sprintf("%s-%d", c.cache, n) }

// hold restores the cluster to a state with n pods and without other history. It fills the cluster only
// once, which takes minutes, and keeps the files in the user's cache.
func (c *cluster) hold(ctx context.Context, n int) error {
	if _, err := os.Stat(c.filled(n)); errors.Is(err, fs.ErrNotExist) {
		if err := c.fillOnce(ctx, n); err != nil {
			return fmt.Errorf("fill the cluster with %d pods: %w", n, err)
		}
	}
	c.has = n
	return c.RestoreEtcd(ctx, c.filled(n))
}

// fillOnce fills the cluster and saves its files. It starts with the pods of an earlier hold, if there was
// one with fewer pods.
func (c *cluster) fillOnce(ctx context.Context, n int) error {
	if c.has > 0 {
		if err := c.RestoreEtcd(ctx, c.filled(c.has)); err != nil {
			return err
		}
	}
	start, half := time.Now(), c.filled(n)+".tmp"
	if err := fill(ctx, c.Config(), c.has, n, c.log); err != nil {
		return err
	}
	if err := errors.Join(c.CompactEtcd(ctx), c.DefragmentEtcd(ctx), os.RemoveAll(half)); err != nil {
		return err
	}
	if err := c.SnapshotEtcd(ctx, half); err != nil {
		return err
	}
	fmt.Fprintf(c.log, "filled in %s, kept in %s\n", time.Since(start).Round(time.Second), c.filled(n))
	return os.Rename(half, c.filled(n))
}

// fill creates the pods with the indexes from up to, but not including, to.
func fill(ctx context.Context, config *rest.Config, from, to int, log io.Writer) error {
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
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(16) // requests mostly wait for etcd
	for i := from; i < to && ctx.Err() == nil; i++ {
		all.Go(func() error {
			if n := from + int(done.Add(1)); n%5000 == 0 {
				fmt.Fprintf(log, "  %d of %d pods\n", n, to)
			}
			return createPod(ctx, client, i)
		})
	}
	return all.Wait()
}

func createSurroundings(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range append(pods.Namespaces(), liveNamespace, emptyNamespace) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range liveObjects {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: liveConfigMap(i)}, Data: map[string]string{"config.yaml": fmt.Sprintf("replicas: %d\n", i)}}
		if _, err := client.CoreV1().ConfigMaps(liveNamespace).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func liveConfigMap(i int) string { return fmt.Sprintf("settings-%d", i) }

// pod returns the i-th pod of the cluster.
func pod(i int) *corev1.Pod {
	p := pods.Pod(seed, i)
	if i < liveObjects {
		p.Namespace = liveNamespace
	}
	return p
}

// createPod creates a pod and writes its status. Each request has the field manager that a real
// cluster uses, so the managedFields are realistic.
func createPod(ctx context.Context, client kubernetes.Interface, i int) error {
	wanted := pod(i)
	api := client.CoreV1().Pods(wanted.Namespace)
	created, err := api.Create(ctx, wanted, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return err
	}
	created.Status = wanted.Status
	if _, err := api.UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil || !pods.Touched(i) {
		return err
	}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"debug":"ticket-%d"}}}`, i)
	_, err = api.Patch(ctx, wanted.Name, types.MergePatchType, label, metav1.PatchOptions{FieldManager: "kubectl-label"})
	return err
}
