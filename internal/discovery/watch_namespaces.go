package discovery

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/refusal"
)

// WatchNamespaces keeps n current until ctx ends, if the selection needs a watch. It calls changed
// with each namespace that becomes selected or deselected, and synced after the first list. It
// retries while access is denied. The caller must wait for the returned WaitGroup.
func (w Watcher) WatchNamespaces(ctx context.Context, n *Namespaces, changed func(namespace string), synced func()) *sync.WaitGroup {
	var running sync.WaitGroup
	if !n.NeedsWatch() {
		return &running
	}
	shared := w.metadataInformer(NamespaceResource, func() { _ = n.Fail(nil) }, func(err error) {
		if err = refusal.Explain(err); apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w; selecting namespaces by label and excluding namespaces require list and watch on namespaces: grant them, or list the readable namespaces in KUBERELAY_NAMESPACES", err)
		}
		if ErrorReason(n.Fail(err)) != ErrorReason(err) {
			w.Logger.Warn("watch of namespaces failed, retrying", "err", err)
		}
	})
	put := func(o any) {
		if m, ok := o.(metav1.ObjectMetaAccessor); ok && n.Put(m.GetObjectMeta().GetName(), m.GetObjectMeta().GetLabels()) {
			changed(m.GetObjectMeta().GetName())
		}
	}
	// AddEventHandler returns an error only after the informer has stopped.
	registration, _ := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, o any) { put(o) },
		DeleteFunc: func(o any) {
			if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			if m, ok := o.(metav1.ObjectMetaAccessor); ok && n.Remove(m.GetObjectMeta().GetName()) {
				changed(m.GetObjectMeta().GetName())
			}
		},
	})
	running.Go(func() { shared.RunWithContext(ctx) })
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-registration.HasSyncedChecker().Done():
			n.Synced()
			if names, _ := n.Selected(); len(names) == 0 && n.Selector() != "" {
				w.Logger.Warn("no namespace matches the selector", "selector", n.Selector())
			}
			synced()
		}
	})
	return &running
}
