package informers

import (
	"context"
	"crypto/rand"
	"iter"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/informers/history"
	"github.com/kuberelay/kuberelay/internal/informers/progress"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// informer is a shared informer with its own context. It does not come from a client-go factory,
// because a factory can neither stop nor forget a single informer.
type informer struct {
	of           *watched
	namespace    string // "" for all namespaces, or for a cluster-scoped resource
	packer       *event.Packer
	name         *cache.InformerName // released when the informer has ended
	shared       cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
	cancel       context.CancelFunc
	stopped      chan struct{} // closed when the informer has ended
	count        progress.Count
	progress     progress.Progress
	counted      counted // guarded by progress, see countAt
	history      *history.History

	mu      sync.Mutex
	failing error     // the error of the last list or watch, nil once a watch is open
	since   time.Time // when the reason of failing last changed
	began   time.Time // when the informer was created or, once it has synced, when it synced
}

// newInformer returns an informer that does not run yet. It adds the handler before the informer
// runs, so that the handler misses no notification.
func (s *Set) newInformer(w *watched, namespace string) (*informer, error) {
	i := &informer{of: w, namespace: namespace, packer: event.NewPacker(), stopped: make(chan struct{}), began: s.config.Now()}
	i.history = history.New(history.Config{
		Resource: w.resource.GroupResource(), Client: s.config.Dynamic.Resource(w.resource.GroupVersionResource()),
		Selected: s.selected(w, metav1.ListOptions{}), Server: s.server,
		MayBeRedefined: func() bool { return s.mayBeRedefined(w.resource.Group) }, Now: s.config.Now,
	})
	// client-go accepts each name only once, so each informer gets a unique name.
	name, err := cache.NewInformerName(w.resource.GroupResource().String() + " " + rand.Text())
	if err != nil {
		return nil, err
	}
	i.name = name
	// The expected type is nil, because bookmarks and objects have different types.
	i.shared = cache.NewSharedIndexInformerWithOptions(s.listerWatcher(i), nil,
		cache.SharedIndexInformerOptions{
			ResyncPeriod:      s.config.Resync,
			Indexers:          s.indexers(),
			ObjectDescription: w.resource.GroupVersionResource().String(),

			Identifier:              name.WithResource(w.resource.GroupVersionResource()),
			InformerMetricsProvider: s.config.InformerMetrics,
		})
	if err := i.shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { s.watchFailed(i, err) }); err != nil {
		return nil, err
	}
	registration, err := i.shared.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(added any, initial bool) {
			o := added.(*event.Object)
			i.progress.Notified(o, true, s.config.Now(), func() { s.onAdd(i, o, initial) })
		},
		UpdateFunc: func(before, after any) {
			old, o := before.(*event.Object), after.(*event.Object)
			i.progress.Notified(o, old != o, s.config.Now(), func() { s.onUpdate(i, old, o) }) // a resync reports the stored object as an update
		},
		DeleteFunc: func(deleted any) {
			o, fresh := deleted.(*event.Object)
			i.progress.Notified(o, fresh, s.config.Now(), func() { s.onDelete(i, deleted) })
		},
	})
	i.registration = registration
	return i, err
}

// synced reports whether the handler has received every object of the first list. The shared
// informer's own HasSynced covers only its store.
func (i *informer) synced() bool { return i.registration.HasSynced() }

// key returns the key of an object from its name in the indexer.
func (i *informer) key(name string) event.Key {
	if !i.of.resource.Namespaced {
		return i.of.resource.Key("", name)
	}
	namespace, name, _ := strings.Cut(name, "/")
	return i.of.resource.Key(namespace, name)
}

// covers reports whether the informer lists and watches the resource and namespace of a key.
func (i *informer) covers(k event.Key) bool {
	return k.GroupResource() == i.of.resource.GroupResource() && (i.namespace == "" || k.Namespace == i.namespace)
}

// keys returns the keys of all objects in the indexer.
func (i *informer) keys() iter.Seq[event.Key] {
	return func(yield func(event.Key) bool) {
		for _, name := range i.shared.GetStore().ListKeys() {
			if !yield(i.key(name)) {
				return
			}
		}
	}
}

// version returns the version up to which the indexer has every change. A later call of get returns
// no older state. version does not use LastSyncResourceVersion, because that is the version of the
// reflector, which can be ahead of the indexer.
func (i *informer) version() string { return i.shared.GetStore().LastStoreSyncResourceVersion() }

// get returns the object of a key in the indexer, or nil if there is none.
func (i *informer) get(k event.Key) *event.Object {
	o, ok, err := i.shared.GetStore().GetByKey(cache.NewObjectName(k.Namespace, k.Name).String())
	if err != nil || !ok {
		return nil
	}
	return o.(*event.Object)
}

// setFailing records an error, or nil if there is none. It reports whether the reason has changed.
// It does not compare the text of the error, which might change with every retry.
func (i *informer) setFailing(err error, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := discovery.ErrorReason(err) != discovery.ErrorReason(i.failing)
	if changed {
		i.since = now
	}
	i.failing = err
	return changed
}

// status returns a consistent status of the informer.
func (i *informer) status() health.Status {
	st := health.Status{Resource: i.of.resource, Namespace: i.namespace, Synced: i.synced()}
	i.mu.Lock()
	defer i.mu.Unlock()
	st.Failing, st.Since = i.failing, i.began
	if i.since.After(st.Since) { // the informer began to fail or stopped failing
		st.Since = i.since
	}
	switch {
	case i.failing != nil:
		st.State, st.Reason = health.Degraded, discovery.ErrorReason(i.failing)
	case st.Synced:
		st.State = health.Synced
	default:
		st.State = health.Starting
	}
	return st
}

func (i *informer) noteSynced(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.began = now
}

// listerWatcher returns the functions that list and watch for an informer. The watch function records
// its failures, because client-go does not report requests that it retries. An informer that fails
// recovers when its watch is open, because the watch might be forbidden even after a successful list.
func (s *Set) listerWatcher(i *informer) cache.ListerWatcher {
	from := apistream.Resource{GroupVersionResource: i.of.resource.GroupVersionResource(), Namespace: i.namespace}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			s.counters.Lists.WithLabelValues(i.of.resource.GroupResource().String()).Inc()
			if o.Continue == "" {
				i.history.BeginList(ctx)
			}
			if o.ResourceVersion == "0" && i.of.epoch > 0 {
				// Every state in a new epoch counts as later than the states on the bus, even a state from a
				// watch cache that is behind. So request a consistent list. After a restart, the bus can still
				// have states of the previous epoch. With WatchList, the first list is always consistent.
				o.ResourceVersion = ""
			}
			list, err := s.config.Streams.List(ctx, from, s.selected(i.of, o), s.decode(i))
			if err != nil {
				return nil, err
			}
			i.progress.List(meta.LenList(list), o.Continue == "", list.GetContinue() == "", s.config.Now())
			if list.GetContinue() == "" {
				i.history.Listed(list.GetResourceVersion())
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			lists, stops := o.SendInitialEvents != nil, i.history.Stops()
			if !lists {
				from, err := i.history.Continue(ctx, o.ResourceVersion)
				if err != nil {
					s.watchFailed(i, err)
					return nil, err
				}
				o.ResourceVersion = from
			} else {
				i.history.BeginList(ctx)
				i.progress.List(0, true, false, s.config.Now())
			}
			ctx = i.history.Watching(ctx, stops)
			w, err := s.config.Streams.Watch(ctx, from, s.selected(i.of, o), s.decode(i), func(asked time.Time) {
				s.counters.Opened(i.of.resource.GroupResource().String())
				i.setFailing(nil, s.config.Now())
				if lists {
					i.history.Listed("")
				}
				i.history.Opened(asked, o.TimeoutSeconds, stops)
			}, func(e watch.Event) {
				lists = i.progress.Watched(e, lists, s.config.Now())
				s.shown(i, e)
			})
			if err != nil && (!lists || !apierrors.IsInvalid(err)) { // without support for WatchList, client-go lists next
				s.watchFailed(i, err)
			}
			return w, err
		},
	}, s.config.Dynamic)
}

// shown is called with every event of a watch before the indexer receives it.
func (s *Set) shown(i *informer, e watch.Event) {
	if e.Type == watch.Error {
		s.watchFailed(i, apierrors.FromObject(e.Object))
		return
	}
	if e.Type != watch.Bookmark {
		s.counters.Changes.WithLabelValues(i.of.resource.GroupResource().String()).Inc()
	}
	i.history.Shown(e)
}

// decode returns a function that reads an object into its cached form. The cached form has no body
// if the object can never be selected.
func (s *Set) decode(i *informer) apistream.Decode {
	decoder := s.config.Converter.Decoder(i.of.resource, i.packer, s.namespaces.MaySelect, s.shapeOf(i.of.resource))
	paths, many := s.references.PathsOf(i.of.resource), sync.Once{}
	return func(text *jsonscan.Scanner) (runtime.Object, error) {
		begin := text.Position()
		o, err := decoder.Read(text)
		if err != nil {
			return nil, err
		}
		if len(paths) > 0 && (!o.Body.None() || o.Unselected) {
			refs, all := paths.Read(text.Between(begin, text.Position()))
			if o.References = refs; !all {
				s.counters.References.WithLabelValues(i.of.resource.GroupResource().String()).Inc()
				many.Do(func() {
					s.log.Warn("object has too many references to follow", "resource", i.of.resource.GroupResource(), "namespace", o.Namespace, "name", o.Name, "followed", len(refs))
				})
			}
		}
		return o, nil
	}
}

// selected adds the label and field selectors to the options of a request. They do not apply to a
// resource that is selected by reference.
func (s *Set) selected(w *watched, o metav1.ListOptions) metav1.ListOptions {
	if w.followed {
		return o
	}
	o.LabelSelector, o.FieldSelector = s.config.LabelSelector, s.config.FieldSelector
	return o
}
