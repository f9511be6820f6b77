package informers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// newOwnInformer makes an informer for the Set's own use, of what tells it what to watch:
// nothing of it is published. Keep is what its cache needs of an object. Opened is called
// whenever a watch has been opened, failed whenever one, or a list, fails unexpectedly.
func (s *Set) newOwnInformer(of schema.GroupVersionResource, keep func(*unstructured.Unstructured) metav1.ObjectMeta, opened func(), failed func(error)) cache.SharedIndexInformer {
	client := s.config.Dynamic.Resource(of)
	shared := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			if err != nil {
				return nil, interruptible(o, err)
			}
			opened()
			return w, nil
		},
	}, s.config.Dynamic), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{ObjectDescription: of.String()})
	// These two fail only on an informer that has started.
	_ = shared.SetTransform(func(o any) (any, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: keep(u)}, nil
		}
		return o, nil
	})
	_ = shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !isExpected(err) && ctx.Err() == nil {
			failed(err)
		}
	})
	return shared
}

// identityOnly is for what is large: schemas, for one.
func identityOnly(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}
}

func withLabels(u *unstructured.Unstructured) metav1.ObjectMeta {
	m := identityOnly(u)
	m.Labels = u.GetLabels()
	return m
}
