package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubewatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// watch is the state of one call of [clusterAPI.watch].
type watch struct {
	*clusterAPI
	objects, secrets []*informer
	changed          chan struct{} // has an element if something has changed

	mu sync.Mutex // protects the field failing of all informers
}

// informer is the informer of one resource in one namespace.
type informer struct {
	cache.SharedIndexInformer
	failing error // error of the last list or watch; nil after a watch has opened
}

// note records the error of a list or a watch, or nil if a watch has opened. It keeps the text of an
// error until the reason changes.
func (w *watch) note(i *informer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || i.failing == nil || apierrors.ReasonForError(err) != apierrors.ReasonForError(i.failing) {
		i.failing = err
		w.notify()
	}
}

// failure returns the error of an informer whose last list or watch failed, or nil.
func (w *watch) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range slices.Concat(w.objects, w.secrets) {
		if i.failing != nil {
			return i.failing
		}
	}
	return nil
}

func (w *watch) notify() {
	select {
	case w.changed <- struct{}{}:
	default: // a change is already pending
	}
}

// informer returns an informer that does not run yet. The setup ignores the errors of the informer's
// methods, because these methods fail only after the informer has started.
func (w *watch) informer(namespace string, resource schema.GroupVersionResource, labels string) *informer {
	i, from := &informer{}, apistream.Resource{GroupVersionResource: resource, Namespace: namespace}
	failed := func(err error) {
		w.note(i, fmt.Errorf("watch %s of the management cluster: %w", resource.Resource, err))
	}
	i.SharedIndexInformer = cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = labels
			list, err := w.streams.List(ctx, from, o, read)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (kubewatch.Interface, error) {
			o.LabelSelector = labels
			stream, err := w.streams.Watch(ctx, from, o, read, func(time.Time) { w.note(i, nil) }, func(kubewatch.Event) {})
			if err != nil && o.SendInitialEvents == nil && ctx.Err() == nil {
				failed(err) // the reflector does not report a refused connection
			}
			return stream, err
		},
	}, w.client), nil, cache.SharedIndexInformerOptions{ObjectDescription: resource.String()})
	_ = i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !apistream.IsExpected(err) && ctx.Err() == nil {
			failed(err)
		}
	})
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.notify() }, UpdateFunc: w.updated, DeleteFunc: func(any) { w.notify() },
	})
	return i
}

// updated notifies of a change of a kubeconfig. The status of a Cluster changes all the time.
func (w *watch) updated(old, o any) {
	if kubeconfigIn(old.(*unstructured.Unstructured)) != kubeconfigIn(o.(*unstructured.Unstructured)) {
		w.notify()
	}
}

// read is an [apistream.Decode] that keeps only the content that the source needs. For example, it drops the
// data of every Secret that is not a kubeconfig, such as the private key of a certificate authority.
func read(s *jsonscan.Scanner) (runtime.Object, error) {
	var u unstructured.Unstructured
	if text := s.Skip(); s.Err() == nil && json.Unmarshal(text, &u.Object) != nil {
		s.Fail()
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetNamespace(u.GetNamespace())
	kept.SetName(u.GetName())
	kept.SetUID(u.GetUID())
	kept.SetResourceVersion(u.GetResourceVersion())
	if text := kubeconfigIn(&u); text != "" && strings.HasSuffix(u.GetName(), kubeconfigSuffix) {
		kept.Object["data"] = map[string]any{kubeconfigKey: text}
	}
	return kept, nil
}

// synced reports whether all lists are complete.
func (w *watch) synced() bool {
	return !slices.ContainsFunc(slices.Concat(w.objects, w.secrets), func(i *informer) bool { return !i.HasSynced() })
}

func (w *watch) list() (all []*unstructured.Unstructured) {
	for _, i := range w.objects {
		for _, o := range i.GetStore().List() {
			if u, ok := o.(*unstructured.Unstructured); ok {
				all = append(all, u)
			}
		}
	}
	return all
}

func (w *watch) secret(namespace, name string) (*unstructured.Unstructured, error) {
	for _, i := range w.secrets {
		if o, ok, _ := i.GetStore().GetByKey(namespace + "/" + name); ok {
			if u, ok := o.(*unstructured.Unstructured); ok {
				return u, nil
			}
		}
	}
	return nil, nil //nolint:nilnil // the cluster waits for its kubeconfig
}
