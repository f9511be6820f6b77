package informers

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/cow"
	"github.com/kuberelay/kuberelay/internal/informers/firstsync"
	"github.com/kuberelay/kuberelay/internal/informers/health"
)

// watched is a resource and the informers that cover it.
type watched struct {
	resource    event.Resource
	followed    bool // watched only because objects of other resources refer to it
	began       time.Time
	epoch       uint16
	firstSync   *firstsync.Sync
	cancel      context.CancelFunc
	stopped     chan struct{} // closed when all goroutines of the resource have ended
	realign     chan struct{} // has a token when the namespaces to cover might have changed
	progress    chan struct{} // has a token when synced might have become true
	firstSynced chan struct{} // closed when synced first becomes true
	missed      atomic.Bool   // the resource was logged as missing from discovery
	selected    atomic.Uint64 // see [Set.Selection]
	abandoning  sync.Mutex    // held while reported states are forgotten or the informers change, see [Set.Point]

	joined     atomic.Bool   // the resource has joined the term, so its keys are enqueued
	everJoined chan struct{} // closed when joined first becomes true
	onceJoined sync.Once     // closes everJoined
	redefined  chan struct{} // has a token when the resource must be listed again

	informers cow.Map[string, *informer] // by namespace; "" for all namespaces
	alignment atomic.Pointer[alignment]  // never nil
}

// alignment is the result of the last alignment of the informers with the namespaces to cover.
type alignment struct {
	complete bool              // the informers have started, or none is needed
	denied   map[string]denial // by namespace; "" for all namespaces
}

// denial is the reason why a namespace of a resource, or the whole resource, is not watched.
type denial struct {
	err   error
	since time.Time
}

func (s *Set) newWatched(r event.Resource, followed bool, cancel context.CancelFunc) *watched {
	w := &watched{
		resource: r, followed: followed, began: s.config.Now(), cancel: cancel, everJoined: make(chan struct{}),
		stopped: make(chan struct{}), realign: make(chan struct{}, 1), progress: make(chan struct{}, 1), firstSynced: make(chan struct{}),
		redefined: make(chan struct{}, 1),
	}
	w.alignment.Store(&alignment{})
	w.firstSync = firstsync.New(firstsync.Config{
		Resource: r, Markers: s.config.Markers, Logger: s.log,
		Len: func() int { return s.len(w) }, Left: func() int { return s.ledger.FirstSyncLeft(r.GroupResource()) },
		Keys: w.keys, IsMissing: func(k event.Key) bool { return s.ledger.IsMissing(k) && s.selectsObject(k, w.get(k)) },
	})
	return w
}

func (w *watched) groupResource() schema.GroupResource { return w.resource.GroupResource() }

func (w *watched) all() []*informer {
	return slices.Collect(maps.Values(w.informers.All()))
}

// keys returns the keys of all objects in the indexers.
func (w *watched) keys() iter.Seq[event.Key] {
	return func(yield func(event.Key) bool) {
		for _, i := range w.all() {
			for k := range i.keys() {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// informer returns the informer that covers a key, or nil if none does.
func (w *watched) informer(k event.Key) *informer {
	all := w.informers.All()
	if i, ok := all[""]; ok {
		return i
	}
	return all[k.Namespace]
}

// get returns the object that an informer shows for a key, or nil if none shows one.
func (w *watched) get(k event.Key) *event.Object {
	if i := w.informer(k); i != nil {
		return i.get(k)
	}
	return nil
}

// keysIn returns the objects of a namespace that an informer shows.
func (w *watched) keysIn(namespace string) []event.Key {
	i := w.informer(event.Key{Namespace: namespace})
	if i == nil || i.count.In(namespace) == 0 { // for example, the namespace was just created
		return nil
	}
	var keys []event.Key
	for k := range i.keys() {
		if k.Namespace == namespace {
			keys = append(keys, k)
		}
	}
	return keys
}

// requestAlign requests that the resource align its informers with the namespaces to cover.
func (w *watched) requestAlign() { signal(w.realign) }

// signal puts a token into a channel that holds one, unless the channel already has a token.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// synced reports whether all selected objects are listed.
func (w *watched) synced() bool {
	return len(w.alignment.Load().denied) == 0 && w.listed()
}

// isDenied reports whether no informer runs in a namespace because access is denied.
func (w *watched) isDenied(namespace string) bool {
	d, ok := w.alignment.Load().denied[namespace]
	return ok && namespace != "" && !errors.Is(d.err, discovery.ErrNotListed)
}

func (w *watched) hasAligned() bool { return w.alignment.Load().complete }

// listed reports whether all readable objects are listed.
func (w *watched) listed() bool {
	if !w.hasAligned() {
		return false
	}
	for _, i := range w.informers.All() {
		if !i.synced() {
			return false
		}
	}
	return true
}

// isListing reports whether a first list is in progress and no informer fails.
func (w *watched) isListing() bool {
	if w.listed() {
		return false
	}
	return !slices.ContainsFunc(w.all(), func(i *informer) bool { return i.status().Failing != nil })
}

// has reports whether an informer covers exactly this namespace. "" means all namespaces.
func (w *watched) has(namespace string) bool {
	_, ok := w.informers.All()[namespace]
	return ok
}

// isForbidden reports whether the watch of exactly this namespace is denied.
func (w *watched) isForbidden(namespace string) bool {
	i := w.informers.All()[namespace]
	return i != nil && apierrors.IsForbidden(i.status().Failing)
}

// coverage describes how the informers currently cover the resource.
func (w *watched) coverage() discovery.Coverage {
	all := w.informers.All()
	_, everywhere := all[""]
	c := discovery.Coverage{Everywhere: everywhere, Separately: !everywhere && len(all) > 0, Working: everywhere && !w.isForbidden(""), Denied: map[string]error{}}
	for namespace, d := range w.alignment.Load().denied {
		if !errors.Is(d.err, discovery.ErrNotListed) {
			c.Denied[namespace] = d.err
		}
	}
	return c
}

// forbidden reports whether access is denied to an informer.
func (w *watched) forbidden() bool {
	return slices.ContainsFunc(w.all(), func(i *informer) bool { return apierrors.IsForbidden(i.status().Failing) })
}

// refused reports whether the API server no longer serves the resource in the version that an
// informer watches.
func (w *watched) refused() bool {
	return slices.ContainsFunc(w.all(), func(i *informer) bool { return apierrors.IsNotFound(i.status().Failing) })
}

// statusOf returns one entry for each informer and one for each namespace to which access is
// denied. If the informers have not started, it adds one entry for the resource. It counts objects
// with count.
func (w *watched) statusOf(count func(*informer) int) []health.Status {
	var all []health.Status
	complete := w.hasAligned() // before the informers: a complete alignment has started all of them
	for _, i := range w.all() {
		st := i.status()
		st.Objects = count(i)
		all = append(all, st)
	}
	// Read the denials after the informers, because an informer ends after its denial is recorded.
	for namespace, d := range w.alignment.Load().denied {
		all = append(all, health.Status{
			Resource: w.resource, Namespace: namespace, State: health.Degraded, Reason: discovery.ErrorReason(d.err), Failing: d.err, Since: d.since,
		})
	}
	if !complete {
		all = append(all, health.Status{Resource: w.resource, State: health.Starting, Since: w.began})
	}
	return all
}
