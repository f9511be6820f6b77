package informers

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// scope is what one informer covers.
type scope struct {
	resource  event.Resource
	namespace string // "" for all, or for a cluster-scoped resource
	followed  bool   // it is selected by reference, so labels and fields are no matter
}

// informer is one shared informer with a context of its own, because client-go's
// factories can neither stop nor forget a single one.
type informer struct {
	scope
	snapshot     *snapshot
	packer       *event.Packer
	name         *cache.InformerName // to be released when the informer has ended
	shared       cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
	cancel       context.CancelFunc
	stopped      chan struct{} // closed when it has ended
	objects      atomic.Int64  // that have been handed on, and whose content is selected

	mu      sync.Mutex
	failing error     // of the last list or watch, nil once a watch has been opened
	since   time.Time // of failing
	began   time.Time // when it was made, and then when it synced
	history history
}

// newInformer makes an informer that is not running. Its handler is added here so
// that no notification can be missed.
func (s *Set) newInformer(sc scope, sn *snapshot) (*informer, error) {
	i := &informer{scope: sc, snapshot: sn, packer: event.NewPacker(), stopped: make(chan struct{}), began: s.config.Now()}
	// client-go takes a name only once, so each informer has one of its own.
	name, err := cache.NewInformerName(sc.resource.GroupResource().String() + " " + rand.Text())
	if err != nil {
		return nil, err
	}
	i.name = name
	// No type is expected: bookmarks are of another one than objects.
	i.shared = cache.NewSharedIndexInformerWithOptions(s.listerWatcher(i), nil,
		cache.SharedIndexInformerOptions{
			ResyncPeriod:      s.config.Resync,
			Indexers:          s.indexers(),
			ObjectDescription: sc.resource.GroupVersionResource().String(),

			Identifier:              name.WithResource(sc.resource.GroupVersionResource()),
			InformerMetricsProvider: s.config.InformerMetrics,
		})
	if err := i.shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { s.watchFailed(i, err) }); err != nil {
		return nil, err
	}
	registration, err := i.shared.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { s.onAdd(i, o.(*event.Object), initial) },
		UpdateFunc: func(old, o any) { s.onUpdate(i, old.(*event.Object), o.(*event.Object)) },
		DeleteFunc: func(o any) { s.onDelete(i, o) },
	})
	i.registration = registration
	return i, err
}

// synced tells whether every object of the first list has been handed to our
// handler. The informer's own HasSynced speaks of its store only.
func (i *informer) synced() bool { return i.registration.HasSynced() }

// waitSynced returns false if ctx ends first.
func (i *informer) waitSynced(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-i.registration.HasSyncedChecker().Done():
		return true
	}
}

// showsUID tells whether an object is in the indexer, of an informer that has synced.
func (i *informer) showsUID(k event.Key, uid string) bool {
	if i == nil || !i.synced() {
		return false
	}
	o := i.get(k)
	return o != nil && string(o.UID) == uid
}

// shows tells whether what the informer shows is at least as late as a version.
func (i *informer) shows(version string) bool {
	order, err := resourceversion.CompareResourceVersion(i.shared.LastSyncResourceVersion(), version)
	return err == nil && order >= 0
}

// key is the inverse of the indexer's name of an object.
func (i *informer) key(name string) event.Key {
	if !i.resource.Namespaced {
		return i.resource.Key("", name)
	}
	namespace, name, _ := strings.Cut(name, "/")
	return i.resource.Key(namespace, name)
}

// get reads the indexer.
func (i *informer) get(k event.Key) *event.Object {
	name := k.Name
	if k.Namespace != "" {
		name = k.Namespace + "/" + k.Name
	}
	o, ok, err := i.shared.GetStore().GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	return o.(*event.Object)
}

// count keeps the number of objects, before and after a change; nil is none.
func (i *informer) count(before, after *event.Object) {
	n := int64(0)
	if before != nil && !before.Unselected {
		n--
	}
	if after != nil && !after.Unselected {
		n++
	}
	if n != 0 {
		i.objects.Add(n)
	}
}

// setFailing tells whether the reason has changed; the text of an error may
// change with every try.
func (i *informer) setFailing(err error, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := reason(err) != reason(i.failing)
	if changed {
		i.since = now
	}
	i.failing = err
	return changed
}

// listerWatcher lists and watches. It notes whether the API server lets us, since
// client-go keeps to itself what it tries again; a list alone is not enough, as the watch
// after it may be forbidden.
func (s *Set) listerWatcher(i *informer) cache.ListerWatcher {
	from := apistream.Resource{GroupVersionResource: i.resource.GroupVersionResource(), Namespace: i.namespace}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			s.metrics.lists.WithLabelValues(i.resource.GroupResource().String()).Inc()
			list, err := s.config.Streams.List(ctx, from, s.selected(i.scope, o), s.decode(i))
			if err != nil {
				return nil, err
			}
			if list.GetContinue() == "" {
				i.listed(list.GetResourceVersion())
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			lists := o.SendInitialEvents != nil
			if !lists {
				from, err := s.sameHistory(ctx, i, o.ResourceVersion)
				if err != nil {
					s.watchFailed(i, err)
					return nil, err
				}
				o.ResourceVersion = from
			}
			w, err := s.config.Streams.Watch(ctx, from, s.selected(i.scope, o), s.decode(i), func() {
				s.metrics.watches.WithLabelValues(i.resource.GroupResource().String()).Inc()
				i.setFailing(nil, s.config.Now())
				if lists {
					i.listed("")
				}
				i.opened(s.config.Now(), o.TimeoutSeconds)
			}, func(e watch.Event) { s.shown(i, e) })
			if err != nil {
				s.watchFailed(i, err)
				return nil, interruptible(o, err)
			}
			return w, nil
		},
	}, s.config.Dynamic)
}

// shown is called with everything that a watch shows, on its way to the indexer.
func (s *Set) shown(i *informer, e watch.Event) {
	if e.Type == watch.Error {
		s.watchFailed(i, apierrors.FromObject(e.Object))
		return
	}
	i.shown(e)
}

// decode makes the cached form of an object as soon as it is read. What will never be
// selected has no body.
func (s *Set) decode(i *informer) apistream.Decode {
	decoder := s.config.Converter.Decoder(i.resource, i.packer, s.namespaces.configured, s.shapeOf(i.resource))
	paths := pathsOf(s.follow.paths, i.resource)
	return func(text *jsonscan.Scanner) (runtime.Object, error) {
		begin := text.Position()
		o, err := decoder.Read(text)
		if err != nil {
			return nil, err
		}
		if len(paths) > 0 && (!o.Body.None() || o.Unselected) {
			o.References = references(paths, text.Between(begin, text.Position()))
		}
		return o, nil
	}
}

// selected adds the selectors.
func (s *Set) selected(sc scope, o metav1.ListOptions) metav1.ListOptions {
	if sc.followed {
		return o
	}
	o.LabelSelector, o.FieldSelector = s.config.LabelSelector, s.config.FieldSelector
	return o
}

// interruptible hides from the reflector that the connection was refused, where
// it opens a stream that begins with a list: it would then wait for up to a
// minute without heeding its context (client-go 0.37, Reflector.watchList).
// Otherwise it tries a list, and after that waits as it should.
func interruptible(o metav1.ListOptions, err error) error {
	if o.SendInitialEvents != nil && utilnet.IsConnectionRefused(err) {
		return errors.New(err.Error())
	}
	return err
}

func resourceClient(client dynamic.Interface, sc scope) dynamic.ResourceInterface {
	r := client.Resource(sc.resource.GroupVersionResource())
	if sc.namespace == "" {
		return r
	}
	return r.Namespace(sc.namespace)
}
