package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/failpoint"
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// NamespaceSelection says in which namespaces objects are selected: those that it
// includes and does not exclude, and whose labels match. The zero value selects all.
// Cluster-scoped objects are selected whatever it says.
type NamespaceSelection struct {
	Include  []string // empty for all
	Exclude  []string
	Selector labels.Selector // nil for all; it follows the namespaces as they change
}

// namespaces knows which namespaces are selected, and follows them where that may
// change. Its zero value is not usable.
type namespaces struct {
	include, exclude sets.Set[string]
	selector         labels.Selector

	// known are the namespaces that exist, and whether their labels match. It is empty
	// where nothing follows them.
	mu      sync.RWMutex
	known   map[string]bool
	failing error // of the last list or watch, nil once one succeeded

	synced chan struct{} // closed when known is complete for the first time
}

func newNamespaces(n NamespaceSelection) *namespaces {
	return &namespaces{
		include: sets.New(n.Include...), exclude: sets.New(n.Exclude...), selector: n.Selector,
		known: map[string]bool{}, synced: make(chan struct{}),
	}
}

// follows tells whether the namespaces themselves have to be watched: for their labels,
// or because all but some are selected, and a watch of each may be all that we are
// allowed.
func (n *namespaces) follows() bool {
	return n.selector != nil || len(n.include) == 0 && len(n.exclude) > 0
}

// all tells whether every namespace is selected, always.
func (n *namespaces) all() bool {
	return n.selector == nil && len(n.include) == 0 && len(n.exclude) == 0
}

// nearlyAll tells whether all namespaces but some are selected.
func (n *namespaces) nearlyAll() bool { return n.selector == nil && len(n.include) == 0 }

// configured tells whether a namespace is selected as long as its labels match, "" being
// that of cluster-scoped objects. The answer never changes.
func (n *namespaces) configured(namespace string) bool {
	return namespace == "" || (len(n.include) == 0 || n.include.Has(namespace)) && !n.exclude.Has(namespace)
}

// selects tells whether the objects of a namespace are selected at present. Of labels
// that are not known yet nothing must be concluded: see ready.
func (n *namespaces) selects(namespace string) bool {
	if !n.configured(namespace) {
		return false
	}
	if n.selector == nil || namespace == "" {
		return true
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known[namespace]
}

// exists is false only if it is certain, by what the watch has shown, that there is no
// such namespace.
func (n *namespaces) exists(namespace string) bool {
	if namespace == "" || !n.follows() || !n.listed() {
		return true
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, ok := n.known[namespace]
	return ok
}

// list gives the selected namespaces in order. It is false where they cannot be told.
func (n *namespaces) list() ([]string, bool) {
	if !n.follows() {
		names := sets.List(n.include.Difference(n.exclude))
		return names, len(n.include) > 0
	}
	if !n.listed() {
		return nil, false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	var names []string
	for namespace, matches := range n.known {
		if matches && n.configured(namespace) {
			names = append(names, namespace)
		}
	}
	slices.Sort(names)
	return names, true
}

// listed tells whether all namespaces that exist have been known once, and are followed
// since.
func (n *namespaces) listed() bool {
	select {
	case <-n.synced:
		return true
	default:
		return false
	}
}

var errNotListed = errors.New("namespaces are not listed yet")

// ready is nil if it is known which namespaces are selected, and else says why not.
func (n *namespaces) ready() error {
	if n.selector == nil || n.listed() || failpoint.Bug("unknown-is-unselected") {
		return nil
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.failing != nil {
		return fmt.Errorf("namespaces are not listed yet: %w", n.failing)
	}
	return errNotListed
}

// fail tells whether the reason is another than before.
func (n *namespaces) fail(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := reason(n.failing) != reason(err)
	n.failing = err
	return changed
}

// put notes a namespace, and tells whether what is selected has changed.
func (n *namespaces) put(name string, l map[string]string) bool {
	matches := n.selector == nil || n.selector.Matches(labels.Set(l))
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.known[name]
	n.known[name] = matches
	return before != matches && n.configured(name)
}

func (n *namespaces) remove(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.known[name]
	delete(n.known, name)
	return before && n.configured(name)
}

// watchNamespaces follows the namespaces until ctx ends. It keeps on trying where we may
// not.
func (s *Set) watchNamespaces(ctx context.Context) *sync.WaitGroup {
	var running sync.WaitGroup
	n := s.namespaces
	if !n.follows() {
		return &running
	}
	shared := s.newOwnInformer(namespaceResource, func() { n.fail(nil) }, func(err error) {
		if n.fail(err) {
			s.log.Warn("namespaces cannot be watched; will be tried again", "err", err)
		}
	})
	// It fails only on an informer that has started.
	registration, _ := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.onNamespace(o) },
		UpdateFunc: func(_, o any) { s.onNamespace(o) },
		DeleteFunc: func(o any) {
			if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			if m, ok := o.(metav1.ObjectMetaAccessor); ok && n.remove(m.GetObjectMeta().GetName()) {
				s.namespaceChanged(m.GetObjectMeta().GetName())
			}
		},
	})
	running.Go(func() { shared.RunWithContext(ctx) })
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-registration.HasSyncedChecker().Done():
			close(n.synced)
			if names, _ := n.list(); len(names) == 0 && n.selector != nil {
				s.log.Warn("no namespace is selected: none has these labels", "selector", n.selector.String())
			}
			s.eachWatched((*watched).lookAgain)
		}
	})
	return &running
}

func (s *Set) onNamespace(o any) {
	if m, ok := o.(metav1.ObjectMetaAccessor); ok {
		m := m.GetObjectMeta()
		if s.namespaces.put(m.GetName(), m.GetLabels()) {
			s.namespaceChanged(m.GetName())
		}
	}
}

// namespaceChanged has every resource look again at which namespaces it covers, and every
// object of the namespace at whether it is selected.
func (s *Set) namespaceChanged(namespace string) {
	if !s.namespaces.listed() {
		return // nothing has been started yet
	}
	s.log.Debug("namespace selected, or no longer", "namespace", namespace, "selected", s.namespaces.selects(namespace))
	s.eachWatched(func(w *watched) {
		if !w.resource.Namespaced {
			return
		}
		w.lookAgain()
		for _, k := range w.keysIn(namespace) {
			s.refer(k)
			s.enqueueBehind(k)
		}
	})
}
