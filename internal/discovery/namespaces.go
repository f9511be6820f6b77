package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// NamespaceSelection selects the namespaces that are included, that are not excluded, and whose
// labels match. The zero value selects all namespaces. Cluster-scoped objects are always selected.
type NamespaceSelection struct {
	Include  []string // empty to include all
	Exclude  []string
	Selector labels.Selector // nil for any labels; the selection follows changes of labels

	// MaxSeparate is the maximum number of selected namespaces that get a separate watch. 0 means
	// 10. For more namespaces, one watch of all namespaces is cheaper for the API server, although
	// it also sends objects that are not selected. Such a watch needs permission for all
	// namespaces.
	MaxSeparate int
}

const defaultMaxSeparate = 10

// Namespaces tracks which namespaces are selected. The watch of namespaces calls Put, Remove,
// Synced, and Fail. Make one with [NewNamespaces].
type Namespaces struct {
	include, exclude sets.Set[string]
	selector         labels.Selector
	maxSeparate      int

	// Changing is called before the selection changes. Until it returns, Selects blocks. Changing must not call
	// a method of Namespaces. It may be nil. Set it before the first call of Put.
	Changing func()

	// known maps each existing namespace to whether its labels match. It is empty if namespaces are
	// not watched.
	mu      sync.RWMutex
	known   map[string]bool
	failing error             // error of the last list or watch, nil if it succeeded
	since   time.Time         // when the reason of failing last changed
	missing map[string]string // result of Missing if namespaces are not watched; nil until it is known
	similar map[string]string // cache: similar names in known, by missing name; nil after a change

	listed chan struct{} // closed when known is complete for the first time
}

// NewNamespaces returns a Namespaces without any known namespace.
func NewNamespaces(n NamespaceSelection) *Namespaces {
	return &Namespaces{
		include: sets.New(n.Include...), exclude: sets.New(n.Exclude...), selector: n.Selector, maxSeparate: cmp.Or(n.MaxSeparate, defaultMaxSeparate),
		known: map[string]bool{}, listed: make(chan struct{}),
	}
}

// NeedsWatch reports whether the selection depends on the existing namespaces. This is the case if
// the selection uses labels, or if it includes all namespaces and excludes some, because each
// remaining namespace might need a separate watch.
func (n *Namespaces) NeedsWatch() bool {
	return n.selector != nil || len(n.include) == 0 && len(n.exclude) > 0
}

// SelectsAll reports whether every namespace is always selected.
func (n *Namespaces) SelectsAll() bool {
	return n.selector == nil && len(n.include) == 0 && len(n.exclude) == 0
}

// SelectsMost reports whether all namespaces except the excluded ones are selected.
func (n *Namespaces) SelectsMost() bool { return n.selector == nil && len(n.include) == 0 }

// MaxSeparate returns the maximum number of selected namespaces that get a separate watch.
func (n *Namespaces) MaxSeparate() int { return n.maxSeparate }

// Named returns the included namespaces in alphabetical order.
func (n *Namespaces) Named() []string { return sets.List(n.include) }

// MaySelect reports whether a namespace is selected if its labels match. The namespace of
// cluster-scoped objects is "". The result for a namespace never changes.
func (n *Namespaces) MaySelect(namespace string) bool {
	return namespace == "" || (len(n.include) == 0 || n.include.Has(namespace)) && !n.exclude.Has(namespace)
}

// Selects reports whether a namespace is currently selected. With a label selector, the result is
// valid only after Ready returns nil.
func (n *Namespaces) Selects(namespace string) bool {
	if !n.MaySelect(namespace) {
		return false
	}
	if n.selector == nil || namespace == "" {
		return true
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known[namespace]
}

// SelectsLabels reports whether the selection includes a namespace with these labels.
func (n *Namespaces) SelectsLabels(namespace string, l map[string]string) bool {
	return n.MaySelect(namespace) && n.matches(l)
}

func (n *Namespaces) matches(l map[string]string) bool {
	return n.selector == nil || n.selector.Matches(labels.Set(l))
}

// UnselectedByLabels reports whether a namespace's labels, which can change, are the only reason why it
// is not selected.
func (n *Namespaces) UnselectedByLabels(namespace string) bool {
	return n.MaySelect(namespace) && !n.Selects(namespace)
}

// Exists reports whether a namespace might exist. It returns false only if the watch of namespaces
// shows that the namespace does not exist.
func (n *Namespaces) Exists(namespace string) bool {
	if namespace == "" || !n.NeedsWatch() || !n.Listed() {
		return true
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, ok := n.known[namespace]
	return ok
}

// Selected returns the selected namespaces in alphabetical order. It returns false if they are not
// known.
func (n *Namespaces) Selected() ([]string, bool) {
	if !n.NeedsWatch() {
		names := sets.List(n.include.Difference(n.exclude))
		return names, len(n.include) > 0
	}
	if !n.Listed() {
		return nil, false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	var names []string
	for namespace, matches := range n.known {
		if matches && n.MaySelect(namespace) {
			names = append(names, namespace)
		}
	}
	slices.Sort(names)
	return names, true
}

// Listed reports whether Synced was called.
func (n *Namespaces) Listed() bool {
	select {
	case <-n.listed:
		return true
	default:
		return false
	}
}

// ErrNotListed means that the selection needs the labels of namespaces, but the namespaces are not
// listed yet. It denies access to nothing.
var ErrNotListed = errors.New("namespaces are not listed yet")

// Ready returns nil if Selects returns valid results, otherwise an error that wraps [ErrNotListed].
func (n *Namespaces) Ready() error {
	if n.selector == nil || n.Listed() {
		return nil
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.failing != nil {
		return fmt.Errorf("%w: %w", ErrNotListed, n.failing)
	}
	return ErrNotListed
}

// Synced records that Put was called for all namespaces. Call it only once.
func (n *Namespaces) Synced() { close(n.listed) }

// Fail records the error of the last list or watch, or nil if it succeeded. It returns the previous
// error.
func (n *Namespaces) Fail(err error) (before error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if before, n.failing = n.failing, err; ErrorReason(before) != ErrorReason(err) {
		n.since = time.Now()
	}
	return before
}

// Failing returns the error of the last list or watch and the time since when it fails, if the
// namespaces were listed before. Until the watch works again, the selection is not current.
func (n *Namespaces) Failing() (err error, since time.Time) { //nolint:revive,staticcheck // the error is a state
	if !n.Listed() {
		return nil, time.Time{}
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.failing, n.since
}

// Put records a namespace and reports whether the selection has changed.
func (n *Namespaces) Put(name string, l map[string]string) (changed bool) {
	matches := n.matches(l)
	n.mu.Lock()
	defer n.mu.Unlock()
	before, existed := n.known[name]
	changed = n.changes(name, before != matches)
	if n.known[name] = matches; !existed {
		n.similar = nil
	}
	return changed
}

// Remove records that a namespace is gone and reports whether the selection has changed.
func (n *Namespaces) Remove(name string) (changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed = n.changes(name, n.known[name])
	delete(n.known, name)
	n.similar = nil
	return changed
}

// changes reports whether the selection is about to change, and calls Changing if so. differs means that the
// labels of the namespace begin or stop to match. The caller holds the lock.
func (n *Namespaces) changes(name string, differs bool) bool {
	if !differs || !n.MaySelect(name) {
		return false
	}
	if n.Changing != nil {
		n.Changing()
	}
	return true
}

// Selector returns the label selector, or "" if there is none.
func (n *Namespaces) Selector() string {
	if n.selector == nil {
		return ""
	}
	return n.selector.String()
}
