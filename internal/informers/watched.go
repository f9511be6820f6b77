package informers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// watched is one resource and the informers that cover it.
type watched struct {
	resource event.Resource
	followed bool // it is watched only because others refer to some of its objects
	snapshot *snapshot
	cancel   context.CancelFunc
	stopped  chan struct{} // closed when all goroutines of the resource have ended
	again    chan struct{} // has a token when what it covers may have changed
	progress chan struct{} // has a token when synced may have become true
	first    chan struct{} // closed when it was true for the first time

	mu        sync.RWMutex
	aligned   bool                 // the informers have been started, or none is to be
	informers map[string]*informer // by namespace, "" for all
	denied    map[string]denial    // by namespace: there is no informer, since we may not
}

// denial is why a namespace of a resource, or all of it, is not watched.
type denial struct {
	err   error
	since time.Time
}

func newWatched(r event.Resource, followed bool, cancel context.CancelFunc) *watched {
	return &watched{
		resource: r, followed: followed, snapshot: newSnapshot(), cancel: cancel,
		stopped: make(chan struct{}), again: make(chan struct{}, 1), progress: make(chan struct{}, 1), first: make(chan struct{}),
		informers: map[string]*informer{}, denied: map[string]denial{},
	}
}

func (w *watched) groupResource() schema.GroupResource { return w.resource.GroupResource() }

// all gives the informers that there are now.
func (w *watched) all() []*informer {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Collect(maps.Values(w.informers))
}

// informer gives the one that covers a key, nil if none does.
func (w *watched) informer(k event.Key) *informer {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if i, ok := w.informers[""]; ok {
		return i
	}
	return w.informers[k.Namespace]
}

// keysIn gives the objects of a namespace that are in an indexer.
func (w *watched) keysIn(namespace string) []event.Key {
	i := w.informer(event.Key{Namespace: namespace})
	if i == nil {
		return nil
	}
	var keys []event.Key
	for _, name := range i.shared.GetStore().ListKeys() {
		if strings.HasPrefix(name, namespace+"/") {
			keys = append(keys, i.key(name))
		}
	}
	return keys
}

// lookAgain has the resource find out anew what it is to cover.
func (w *watched) lookAgain() {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

func (w *watched) advanced() {
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

// synced tells whether all that is selected has been handed on.
func (w *watched) synced() bool {
	w.mu.RLock()
	denied := len(w.denied) > 0
	w.mu.RUnlock()
	return !denied && w.listed()
}

func (w *watched) hasAligned() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.aligned
}

// listed tells whether all that we may read has been handed on.
func (w *watched) listed() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if !w.aligned {
		return false
	}
	for _, i := range w.informers {
		if !i.synced() {
			return false
		}
	}
	return true
}

// len is the number of objects that are selected.
func (s *Set) len(w *watched) int {
	n := 0
	for _, i := range w.all() {
		n += s.lenOf(i)
	}
	return n
}

func (s *Set) lenOf(i *informer) int {
	if !i.followed && (i.namespace != "" || !i.resource.Namespaced || s.namespaces.all()) {
		return int(i.objects.Load())
	}
	n := 0
	for _, name := range i.shared.GetStore().ListKeys() {
		if k := i.key(name); s.selects(k) {
			if o := i.get(k); o != nil && !o.Unselected {
				n++
			}
		}
	}
	return n
}

// has tells whether there is an informer of a namespace, "" for all.
func (w *watched) has(namespace string) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	_, ok := w.informers[namespace]
	return ok
}

// watchesAll tells whether there is one informer of all namespaces that is not forbidden.
func (w *watched) watchesAll() bool {
	w.mu.RLock()
	i := w.informers[""]
	w.mu.RUnlock()
	return i != nil && !apierrors.IsForbidden(i.status().Failing)
}

// forbidden tells whether an informer is refused.
func (w *watched) forbidden() bool {
	return slices.ContainsFunc(w.all(), func(i *informer) bool { return apierrors.IsForbidden(i.status().Failing) })
}

// statusOf has an entry for each informer, for each namespace in which there is none since
// we may not, and one for a resource whose informers are not there yet.
func (s *Set) statusOf(w *watched) []Status {
	var all []Status
	for _, i := range w.all() {
		st := i.status()
		st.Objects = s.lenOf(i)
		all = append(all, st)
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	for namespace, d := range w.denied {
		all = append(all, Status{
			Resource: w.resource, Namespace: namespace, State: Degraded, Reason: reason(d.err), Failing: d.err, Since: d.since,
		})
	}
	if !w.aligned {
		all = append(all, Status{Resource: w.resource, State: Starting})
	}
	return all
}

// eachWatched calls f for every resource that is watched now.
func (s *Set) eachWatched(f func(*watched)) {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.watched))
	s.mu.RUnlock()
	for _, w := range all {
		f(w)
	}
}

// sends tells whether the object that an indexer shows, if one does, is to be on the bus.
func (s *Set) sends(k event.Key) bool {
	if !s.selects(k) {
		return false
	}
	if w := s.watchedFor(k.GroupResource()); s.config.Shape != nil && w != nil {
		if i := w.informer(k); i != nil {
			o := i.get(k)
			return o == nil || !o.Unselected
		}
	}
	return true
}

// selects tells whether an object is to be on the bus, if it exists and its content is
// selected too.
func (s *Set) selects(k event.Key) bool {
	selected := s.namespaces.selects(k.Namespace)
	if !selected || !s.follow.on() {
		return selected
	}
	w := s.watchedFor(k.GroupResource())
	if w == nil || !w.followed {
		return true
	}
	kind := schema.GroupKind{Group: w.resource.Group, Kind: w.resource.Kind}
	return s.follow.refers(target{kind, k.Namespace, k.Name})
}

// tells tells whether the bus is to be told of an object that it shows as existing and
// that is not selected. What leaves by a change of its namespace's labels always is, and
// what nothing refers to any more; what another configuration had selected, only where
// that is wanted.
func (s *Set) tells(k event.Key) bool {
	if !s.namespaces.configured(k.Namespace) {
		return s.config.TellDeselected
	}
	if w := s.watchedFor(k.GroupResource()); s.follow.on() && w != nil && w.followed && s.namespaces.selects(k.Namespace) {
		return s.follow.complete.Load()
	}
	return true
}
