package informers

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// newOwnInformer makes an informer for the Set's own use, of what tells it what to watch:
// nothing of it is published. What it caches is of the type [metav1.PartialObjectMetadata],
// with name, UID, resourceVersion and labels only: definitions are large. Opened is called
// whenever a watch has been opened, failed whenever one, or a list, fails unexpectedly.
func (s *Set) newOwnInformer(of schema.GroupVersionResource, opened func(), failed func(error)) cache.SharedIndexInformer {
	from := apistream.Resource{GroupVersionResource: of}
	shared := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.config.Streams.List(ctx, from, o, readMetadata)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := s.config.Streams.Watch(ctx, from, o, readMetadata, opened, func(watch.Event) {})
			if err != nil {
				return nil, interruptible(o, err)
			}
			return w, nil
		},
	}, s.config.Dynamic), nil, cache.SharedIndexInformerOptions{ObjectDescription: of.String()})
	// It fails only on an informer that has started.
	_ = shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !isExpected(err) && ctx.Err() == nil {
			failed(err)
		}
	})
	return shared
}

// readMetadata is an [apistream.Decode].
func readMetadata(s *jsonscan.Scanner) (runtime.Object, error) {
	var m struct {
		Name            string            `json:"name"`
		UID             types.UID         `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	}
	for s.Object(); s.Next(); {
		is := string(s.Key()) == "metadata"
		if text := s.Skip(); is && s.Err() == nil && json.Unmarshal(text, &m) != nil {
			s.Fail()
		}
	}
	if m.Name == "" {
		s.Fail()
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
	}}, nil
}
