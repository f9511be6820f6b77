package informers

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
)

var _ reconcile.Informers = (*Set)(nil)

// DescribeResource returns the current view of a resource.
func (s *Set) DescribeResource(gr schema.GroupResource) reconcile.ResourceView {
	v := reconcile.ResourceView{
		ReferencesKnown: s.references.IsComplete(),
		HasReferences:   s.references.HasSources(gr),
	}
	if a := s.lastAnswer(); a != nil {
		v.Catalog = a.Catalog
		v.Selected = slices.ContainsFunc(slices.Concat(a.Resolution.Watch, s.references.Resources()), func(r event.Resource) bool { return r.GroupResource() == gr })
	}
	if w := s.watchedFor(gr); w != nil {
		v.Watched, v.Resource, v.Epoch = true, w.resource, w.epoch
	}
	return v
}

// SelectsNamespace reports whether a namespace with these labels is selected.
func (s *Set) SelectsNamespace(namespace string, labels map[string]string) bool {
	return s.namespaces.SelectsLabels(namespace, labels)
}

// DescribeObject returns the informers' current view of a key. It does not block.
func (s *Set) DescribeObject(k event.Key) reconcile.ObjectView {
	w := s.watchedFor(k.GroupResource())
	// First check whether the selection is known, so that Selected reflects everything that was
	// known at that time.
	v := reconcile.ObjectView{
		NamespacesKnown:    s.namespaces.Ready() == nil,
		NamespaceExists:    s.namespaces.Exists(k.Namespace),
		UnselectedByLabels: s.namespaces.UnselectedByLabels(k.Namespace),
		ReferencesKnown:    w == nil || !w.followed || s.references.IsComplete(),
	}
	v.Selected, v.Outlived = s.selects(k), s.ledger.Outlived(k)
	if w == nil {
		return v
	}
	v.Filtered = !w.followed && (s.config.LabelSelector != "" || s.config.FieldSelector != "")
	v.PublishDeselected = !v.Selected && s.publishesDeselected(k)
	v.Denied = w.isDenied(k.Namespace)
	if i := w.informer(k); i != nil {
		v.Covered, v.Synced = true, i.synced()
		v.Denied = !v.Synced && i.namespace != "" && apierrors.IsForbidden(i.status().Failing)
		v.Version = i.version() // before Live
		v.Live = i.get(k)
	}
	return v
}

// FirstSync returns the number of objects that the first syncs in progress have found so far, and
// the number of these that the bus has not acknowledged. listing means that the lists in progress
// can find more objects.
func (s *Set) FirstSync() (objects, left int, listing bool) {
	s.eachWatched(func(w *watched) {
		if !w.joined.Load() || w.firstSync.IsDone() {
			return
		}
		unacknowledged, lists := s.ledger.FirstSyncLeft(w.groupResource()), w.isListing()
		if unacknowledged == 0 && !lists {
			return // the bus has all readable objects
		}
		objects, left, listing = objects+max(s.len(w), unacknowledged), left+unacknowledged, listing || lists
	})
	return objects, left, listing
}

// Decision returns the decision of the last discovery about a resource that a selector matches. It
// returns false for other resources, and before the first discovery.
func (s *Set) Decision(gr schema.GroupResource) (discovery.Decision, bool) {
	a := s.lastAnswer()
	if a == nil {
		return discovery.Decision{}, false
	}
	d, ok := a.Resolution.Decisions[gr]
	return d, ok
}

// Discovered reports whether the result of the first discovery is in effect.
func (s *Set) Discovered() bool { return s.lastAnswer() != nil }

// Unmatched contains the entries in the settings that currently match nothing. Each map value is a
// similar name that exists, or "" if there is none.
type Unmatched struct {
	Resources, ExcludedResources   map[string]string // selectors
	Namespaces, ExcludedNamespaces map[string]string
	NamespaceSelector              string // "" if the selector matches a namespace or is not set
}

// Unmatched returns the entries of settings that currently match nothing. ok is false before the
// first discovery, and until the existing namespaces are known.
func (s *Set) Unmatched() (u Unmatched, ok bool) {
	a := s.lastAnswer()
	if a == nil {
		return u, false
	}
	u.Resources, u.ExcludedResources = a.Similar(a.Resolution.Unmatched), a.Similar(a.Resolution.UnmatchedExclude)
	u.Namespaces, u.ExcludedNamespaces = s.namespaces.Missing(), s.namespaces.MissingExcluded()
	if s.namespaces.SelectsNone() {
		u.NamespaceSelector = s.namespaces.Selector()
	}
	return u, s.namespaces.Looked()
}

// AddTombstone records that a UID is gone or deselected, and enqueues the key.
func (s *Set) AddTombstone(k event.Key, t event.Tombstone) {
	s.ledger.AddTombstone(k, t)
	s.enqueue(k)
}

// ForgetOthers forgets the tombstones of a key whose UIDs the bus cannot show.
func (s *Set) ForgetOthers(k event.Key) {
	s.ledger.ForgetOthers(k)
	s.Settled(k)
}

// MarkOutlived records that a consistent read confirmed the informers' state of a key, although
// the bus has a delete or a foreign event. It enqueues the key.
func (s *Set) MarkOutlived(k event.Key, is event.Outlived) {
	s.ledger.MarkOutlived(k, is, s.config.Now())
	s.enqueue(k)
}
