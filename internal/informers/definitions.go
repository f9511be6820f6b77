package informers

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

var (
	definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServiceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// definitions watches what decides which resources there are: the definitions of
// custom resources, and the APIServices, each of which says where a version of a
// group is served. Of both only that they change is of interest: whatever discovery
// depends on, such as the conditions Established and Available, is in their status.
type definitions struct {
	changed chan struct{} // has a token when there may have been a change
	all     []*definitionWatch
	running sync.WaitGroup
}

// definitionWatch is one of the two.
type definitionWatch struct {
	of     schema.GroupVersionResource
	shared cache.SharedIndexInformer
	open   atomic.Bool // the last watch could be opened, and has not failed since
}

// watchDefinitions watches until ctx ends. Where that is not allowed the periodic
// discovery finds new resources all the same.
func (s *Set) watchDefinitions(ctx context.Context) *definitions {
	d := &definitions{changed: make(chan struct{}, 1)}
	for _, of := range []schema.GroupVersionResource{definitionResource, apiServiceResource} {
		w := &definitionWatch{of: of}
		w.shared = s.newDefinitionInformer(w, d.notify)
		d.all = append(d.all, w)
		d.running.Go(func() { w.shared.RunWithContext(ctx) })
	}
	return d
}

func (d *definitions) notify() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// watched tells whether no change can be missed.
func (d *definitions) watched() bool {
	for _, w := range d.all {
		if !w.open.Load() || !w.shared.HasSynced() {
			return false
		}
	}
	return true
}

func (d *definitions) wait() { d.running.Wait() }

func (s *Set) newDefinitionInformer(w *definitionWatch, notify func()) cache.SharedIndexInformer {
	var told atomic.Value // the reason last told
	shared := s.newOwnInformer(w.of, func() {
		if !w.open.Swap(true) {
			s.log.Debug("definitions are watched", "resource", w.of.GroupResource().String())
		}
	}, func(err error) {
		if w.open.Swap(false) {
			notify() // from now on it is polled, and there may have been a change
		}
		if why := reason(err); told.Swap(why) != why {
			s.log.Info("definitions cannot be watched; what they change is found by polling discovery", "resource", w.of.GroupResource().String(), "err", err)
		}
	})
	// It fails only on an informer that has started.
	_, _ = shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	})
	return shared
}

// reads is the client for single objects.
func (s *Set) reads() dynamic.Interface {
	if s.config.Reads == nil {
		return s.config.Dynamic
	}
	return s.config.Reads
}
