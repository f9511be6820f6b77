package discovery

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Definitions watches the objects that define resources: CustomResourceDefinitions and APIServices.
// An APIService names the server of one version of a group. Definitions only reports that these
// objects have changed. This suffices, because everything that discovery depends on, such as the
// conditions Established and Available, is part of these objects.
type Definitions struct {
	changed chan struct{} // has a token after a possible change
	all     []*definitionWatch
	running sync.WaitGroup
}

type definitionWatch struct {
	of     schema.GroupVersionResource
	shared cache.SharedIndexInformer
	open   atomic.Bool // the last watch was opened and has not failed since
}

// Redefinition names the resources that the API server might serve differently after a change of a
// CustomResourceDefinition or an APIService.
type Redefinition struct {
	Group             string
	Resource, Version string // one of them is "", which means all
}

// Concerns reports whether the API server might serve r differently.
func (d Redefinition) Concerns(r event.Resource) bool {
	return d.Group == r.Group && (d.Resource == "" || d.Resource == r.Resource) && (d.Version == "" || d.Version == r.Version)
}

// redefinition compares two states of a CustomResourceDefinition or of an APIService. It returns
// false if the change does not affect how the API server serves resources.
func redefinition(of schema.GroupVersionResource, old, o any) (Redefinition, bool) {
	before, err := meta.Accessor(old)
	if err != nil {
		return Redefinition{}, false
	}
	after, err := meta.Accessor(o)
	if err != nil {
		return Redefinition{}, false
	}
	name, group, _ := strings.Cut(after.GetName(), ".")
	if of == DefinitionResource {
		return Redefinition{Group: group, Resource: name}, before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID()
	}
	// The APIService might now point to another API server. That server can have any version.
	return Redefinition{Group: group, Version: name}, before.GetResourceVersion() != after.GetResourceVersion()
}

// WatchDefinitions watches CustomResourceDefinitions and APIServices until ctx ends. It calls
// redefined for each change after which the API server might serve resources differently. If access
// is denied, only the periodic discovery finds new resources.
func (w Watcher) WatchDefinitions(ctx context.Context, redefined func(Redefinition)) *Definitions {
	d := &Definitions{changed: make(chan struct{}, 1)}
	for _, of := range []schema.GroupVersionResource{DefinitionResource, APIServiceResource} {
		one := &definitionWatch{of: of}
		one.shared = w.definitionInformer(one, d.notify, redefined)
		d.all = append(d.all, one)
		d.running.Go(func() { one.shared.RunWithContext(ctx) })
	}
	return d
}

func (d *Definitions) notify() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Changed returns a channel that receives a token after a possible change.
func (d *Definitions) Changed() <-chan struct{} { return d.changed }

// IsWatched reports whether all watches are open and synced, so that no change can be missed.
func (d *Definitions) IsWatched() bool {
	return d.HasSynced() && !slices.ContainsFunc(d.all, func(w *definitionWatch) bool { return !w.open.Load() })
}

// HasSynced reports whether CustomResourceDefinitions and APIServices were listed.
func (d *Definitions) HasSynced() bool {
	return !slices.ContainsFunc(d.all, func(w *definitionWatch) bool { return !w.shared.HasSynced() })
}

// Wait returns when the watches have ended.
func (d *Definitions) Wait() { d.running.Wait() }

func (w Watcher) definitionInformer(d *definitionWatch, notify func(), redefined func(Redefinition)) cache.SharedIndexInformer {
	var logged atomic.Value // the last logged reason
	shared := w.metadataInformer(d.of, func() {
		if !d.open.Swap(true) {
			w.Logger.Debug("watching definitions", "resource", d.of.GroupResource().String())
		}
	}, func(err error) {
		if d.open.Swap(false) {
			notify() // a change might have been missed, and discovery must poll from now on
		}
		if why := ErrorReason(err); logged.Swap(why) != why {
			w.Logger.Info("watch of definitions failed, polling discovery", "resource", d.of.GroupResource().String(), "err", err)
		}
	})
	// AddEventHandler returns an error only after the informer has stopped.
	_, _ = shared.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if r, ok := redefinition(d.of, &metav1.PartialObjectMetadata{}, o); ok && !initial { // the definition might have been deleted just before
				redefined(r)
			}
			notify()
		},
		UpdateFunc: func(old, o any) {
			if r, ok := redefinition(d.of, old, o); ok {
				redefined(r)
			}
			notify()
		},
		DeleteFunc: func(any) { notify() },
	})
	return shared
}
