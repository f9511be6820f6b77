package discovery

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// Watcher watches the objects that define which resources and namespaces exist. It does not publish
// them.
type Watcher struct {
	Dynamic dynamic.Interface // tells client-go whether the client supports WatchList, which fake clients do not
	Streams *apistream.Client
	Logger  *slog.Logger
}

// metadataInformer returns an informer of a resource. Because CustomResourceDefinitions are large,
// the informer caches only name, UID, resourceVersion, generation, and labels, as
// [metav1.PartialObjectMetadata]. It calls opened when a watch has opened, and failed after each
// unexpected error of a list or a watch.
func (w Watcher) metadataInformer(of schema.GroupVersionResource, opened func(), failed func(error)) cache.SharedIndexInformer {
	from := apistream.Resource{GroupVersionResource: of}
	note := func(ctx context.Context, err error) {
		if !apistream.IsExpected(err) && ctx.Err() == nil {
			failed(err)
		}
	}
	shared := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := w.Streams.List(ctx, from, o, readMetadata)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			stream, err := w.Streams.Watch(ctx, from, o, readMetadata, func(time.Time) { opened() }, func(watch.Event) {})
			if err != nil && o.SendInitialEvents == nil {
				note(ctx, err) // the reflector does not report a refused connection
			}
			return stream, err
		},
	}, w.Dynamic), nil, cache.SharedIndexInformerOptions{ObjectDescription: of.String()})
	// SetWatchErrorHandlerWithContext returns an error only after the informer has started.
	_ = shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { note(ctx, err) })
	return shared
}

// readMetadata is an [apistream.Decode] that keeps only the cached metadata.
func readMetadata(s *jsonscan.Scanner) (runtime.Object, error) {
	var m struct {
		Name            string            `json:"name"`
		UID             types.UID         `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Generation      int64             `json:"generation"`
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
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation, Labels: m.Labels,
	}}, nil
}

// ErrorReason classifies the error of a request as "forbidden", "not_found", or "unauthorized".
// Every other error is "failing". ErrorReason returns "" for no error. The result is a metric
// label.
func ErrorReason(err error) string {
	switch {
	case err == nil:
		return ""
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsNotFound(err):
		return "not_found"
	case apierrors.IsUnauthorized(err):
		return "unauthorized"
	default:
		return "failing"
	}
}
