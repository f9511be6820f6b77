package source

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
)

const (
	clusterGroup = "cluster.x-k8s.io"
	// clusterNameLabel is on every Secret of a Cluster. Cluster API itself uses the label to find
	// Secrets.
	clusterNameLabel = clusterGroup + "/cluster-name"
	kubeconfigSuffix = "-kubeconfig"
	kubeconfigKey    = "value"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// clusterAPI is the source that reads Cluster objects.
type clusterAPI struct {
	Config
	kube      *rest.Config
	namespace string
	client    dynamic.Interface
	served    *discovery.DiscoveryClient
	streams   *apistream.Client
}

func newClusterAPI(c Config) (*clusterAPI, error) {
	kube, namespace, err := c.Home()
	if err != nil {
		return nil, err
	}
	s := &clusterAPI{Config: c, kube: kube, namespace: namespace}
	if s.client, err = dynamic.NewForConfig(kube); err != nil {
		return nil, fmt.Errorf("create a client for the management cluster: %w", err)
	}
	if s.served, err = discovery.NewDiscoveryClientForConfig(kube); err != nil {
		return nil, fmt.Errorf("create a client for the management cluster: %w", err)
	}
	if s.streams, err = apistream.New(kube); err != nil {
		return nil, fmt.Errorf("create a client for the management cluster: %w", err)
	}
	return s, nil
}

// clusters returns the Cluster resource in the version that the API server prefers.
func (s *clusterAPI) clusters(ctx context.Context) (schema.GroupVersionResource, error) {
	groups, err := s.served.ServerGroupsWithContext(ctx)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("the API server of the management cluster does not respond: %w", err)
	}
	for _, g := range groups.Groups {
		if g.Name == clusterGroup {
			return schema.GroupVersionResource{Group: clusterGroup, Version: g.PreferredVersion.Version, Resource: "clusters"}, nil
		}
	}
	return schema.GroupVersionResource{}, errors.New("the management cluster does not serve clusters." + clusterGroup + "; install Cluster API there")
}

// namespaces returns the namespaces to read, or "" for all.
func (s *clusterAPI) namespaces() []string {
	if slices.Contains(s.Settings.ClusterAPI, "*") {
		return []string{metav1.NamespaceAll}
	}
	return s.Settings.ClusterAPI
}

// Read implements [Source].
func (s *clusterAPI) Read(ctx context.Context) ([]Cluster, error) {
	resource, err := s.clusters(ctx)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, ns := range s.namespaces() {
		list, err := s.client.Resource(resource).Namespace(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the Cluster objects: %w", err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	return s.all(objects, func(namespace, name string) (*unstructured.Unstructured, error) {
		secret, err := s.client.Resource(secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // the cluster waits for its kubeconfig
		}
		return secret, err
	}), nil
}

// all returns a cluster for each Cluster object, and one for the management cluster if it is named.
func (s *clusterAPI) all(objects []*unstructured.Unstructured, secret func(namespace, name string) (*unstructured.Unstructured, error)) []Cluster {
	var found []Cluster
	if s.Settings.Management != "" {
		found = append(found, Cluster{Name: s.Settings.Management, Kube: s.kube, Namespace: s.namespace})
	}
	for _, o := range objects {
		name := o.GetNamespace() + "." + o.GetName()
		from := o.GetName() + kubeconfigSuffix
		kubeconfig, err := secret(o.GetNamespace(), from)
		if err != nil {
			found = append(found, Cluster{Name: name, Err: fmt.Errorf("read the Secret %s with its kubeconfig: %w", from, err)})
			continue
		}
		found = append(found, s.of(name, from, kubeconfig))
	}
	return unique(found)
}

// of returns the named cluster, with the kubeconfig in its Secret. from is the name of the Secret,
// for errors. secret is nil if the Secret does not exist.
func (s *clusterAPI) of(name, from string, secret *unstructured.Unstructured) Cluster {
	if secret == nil {
		return Cluster{Name: name, Err: fmt.Errorf("waiting for its kubeconfig, in a Secret %s with the label %s", from, clusterNameLabel)}
	}
	raw, err := base64.StdEncoding.DecodeString(kubeconfigIn(secret))
	if err != nil || len(raw) == 0 {
		return Cluster{Name: name, Err: fmt.Errorf("the Secret %s has no key %s with a kubeconfig", from, kubeconfigKey)}
	}
	kubeconfig, err := parse(raw)
	if err == nil {
		err = isolated(kubeconfig)
	}
	if err != nil {
		return Cluster{Name: name, Err: fmt.Errorf("the Secret %s: %w", from, err)}
	}
	c := s.cluster(name, kubeconfig)
	if c.Err != nil {
		c.Err = fmt.Errorf("the Secret %s: %w", from, c.Err)
	}
	return c
}

// kubeconfigIn returns the encoded kubeconfig in a Secret. It returns "" if there is none, and for a
// Cluster object.
func kubeconfigIn(o *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(o.Object, "data", kubeconfigKey)
	return text
}

// Watch implements [Source]. While the management cluster does not respond, the clusters stay.
func (s *clusterAPI) Watch(ctx context.Context, found func([]Cluster), failed func(error)) {
	retry := wait.Backoff{Duration: time.Second, Factor: 1.5, Jitter: 0.3, Steps: 1 << 30, Cap: 30 * time.Second}
	// Until returns an error only when ctx has ended.
	_ = retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		resource, err := s.clusters(ctx)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if failed(err); err == nil {
			s.watch(ctx, resource, found, failed)
		}
		return false, nil
	})
}

// watch implements Watch for one version of the Cluster objects. It returns when the management
// cluster no longer serves that version, or ctx ends.
func (s *clusterAPI) watch(ctx context.Context, resource schema.GroupVersionResource, found func([]Cluster), failed func(error)) {
	w := watch{clusterAPI: s, changed: make(chan struct{}, 1)}
	for _, ns := range s.namespaces() {
		w.objects = append(w.objects, w.informer(ns, resource, ""))
		w.secrets = append(w.secrets, w.informer(ns, secrets, clusterNameLabel))
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, i := range slices.Concat(w.objects, w.secrets) {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	running.Go(func() { // an empty list causes no event
		if cache.WaitForCacheSync(ctx.Done(), w.synced) {
			w.notify()
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			err := w.failure()
			if failed(err); apierrors.IsNotFound(err) {
				return
			}
			if w.synced() {
				found(s.all(w.list(), w.secret))
			}
		}
	}
}
