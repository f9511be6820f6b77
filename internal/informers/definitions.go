package informers

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// watchDefinitions puts a token into changed whenever a CustomResourceDefinition
// may have changed, until ctx ends. Where we may not watch them the periodic
// discovery finds new resources all the same, only later.
func (s *Set) watchDefinitions(ctx context.Context, changed chan<- struct{}) *sync.WaitGroup {
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	client := s.config.Dynamic.Resource(definitionResource)
	shared := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			if err != nil {
				return nil, interruptible(o, err)
			}
			return w, nil
		},
	}, s.config.Dynamic), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{ObjectDescription: definitionResource.String()})

	var told sync.Once
	// These three fail only on an informer that has started.
	_ = shared.SetTransform(identityOnly)
	_ = shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if !isExpected(err) {
			told.Do(func() {
				s.log.Info("CustomResourceDefinitions cannot be watched; new ones are found by polling", "interval", s.config.Rediscover, "err", err)
			})
		}
	})
	_, _ = shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	})
	var running sync.WaitGroup
	running.Go(func() { shared.RunWithContext(ctx) })
	return &running
}

// identityOnly keeps of a definition what the cache needs; schemas are large.
func identityOnly(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
	}}, nil
}
