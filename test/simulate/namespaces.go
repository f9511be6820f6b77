package simulate

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// This file models the namespace of the objects, the watch of namespaces, and how internal/informers
// follows it. The product's own [discovery.Namespaces] decides which namespaces are selected.

// scope is how the configuration selects namespaces.
type scope uint8

const (
	everyNamespace  scope = iota
	oneWatch              // by label, with one watch of all namespaces
	separateWatches       // by label, with a watch of each selected namespace
	byName                // by name, with the permissions of a Role in the namespace
	scopes
)

// usesLabels reports whether the scope selects the namespace by its labels. If so, a forwarder watches
// namespaces.
func (s scope) usesLabels() bool { return s == oneWatch || s == separateWatches }

// space is a state of the namespace. The zero value means that it doesn't exist.
type space struct{ exists, label bool }

// isSelected reports whether a scope selects the namespace.
func (s space) isSelected(by scope) bool { return !by.usesLabels() || s.exists && s.label }

// spaceChange is an entry in the history of the namespace.
type spaceChange struct {
	version uint64
	after   space
}

// space returns the current state of the namespace.
func (c *cluster) space() space { return c.spaces[len(c.spaces)-1].after }

func (c *cluster) putSpace(s space) {
	c.version++
	c.spaces = append(c.spaces, spaceChange{c.version, s})
}

// spaceWatch is a forwarder's watch of namespaces.
type spaceWatch struct {
	view      *discovery.Namespaces
	shown     int  // number of entries in the history of the namespace that the watch has shown
	isCovered bool // an informer covers the namespace
	aligned   bool // the resource has had its first informers
	realign   bool // the informers may not match the selected namespaces
}

func (p *process) newSpaceWatch() spaceWatch {
	switch p.config.scope {
	case everyNamespace:
		return spaceWatch{view: discovery.NewNamespaces(discovery.NamespaceSelection{}), isCovered: true, aligned: true}
	case byName:
		return spaceWatch{view: discovery.NewNamespaces(discovery.NamespaceSelection{Include: []string{namespace}}), realign: true}
	}
	return spaceWatch{view: discovery.NewNamespaces(discovery.NamespaceSelection{Selector: labels.SelectorFromSet(labels.Set{"on": "true"})})}
}

// isBehindSpaces reports whether the watch of namespaces hasn't caught up, or the informers don't match it.
func (p *process) isBehindSpaces() bool {
	return p.mustAlign() || p.config.scope.usesLabels() && p.spaces.shown < len(p.world.cluster.spaces)
}

// mustAlign reports whether the informers don't match the selected namespaces, or access to the
// namespace has been granted.
func (p *process) mustAlign() bool {
	return p.spaces.realign || p.isStuck() || p.config.scope == byName && !p.spaces.isCovered && p.hasAccess()
}

// hasAccess reports whether the API server lets the forwarder read the objects.
func (p *process) hasAccess() bool { return p.config.scope != byName || p.world.cluster.role }

// isDenied reports whether access is denied, and no list has shown the objects. The model notices a denial at
// once.
func (p *process) isDenied() bool { return !p.hasAccess() && !p.reflector.synced() }

// isStuck reports whether the informer holds a list that it can't renew, because access is denied.
func (p *process) isStuck() bool {
	r := &p.reflector
	return !p.hasAccess() && r.listed && (!r.watching || r.again)
}

// seesUnselected reports whether the watch of namespaces shows that the namespace isn't selected.
func (p *process) seesUnselected() bool { return p != nil && !p.spaces.view.Selects(namespace) }

// offerSpaces offers the actions of the watch of namespaces.
func (w *world) offerSpaces(slot int8, p *process) {
	if s := &p.spaces; p.config.scope.usesLabels() && s.shown < len(w.cluster.spaces) {
		w.offer(showSpace, slot, none, 3)
	}
	if p.mustAlign() {
		w.offer(align, slot, none, 1)
	}
}

// showSpace shows the next state of the namespace. It can skip states, as a list does. The first list
// may be stale.
func (p *process) showSpace(skip uint8) {
	s, all := &p.spaces, p.world.cluster.spaces
	first := s.shown == 0
	if first {
		s.shown = max(1, len(all)-int(skip))
	} else {
		s.shown = min(len(all), s.shown+1+int(skip))
	}
	is := all[s.shown-1].after
	p.world.tell("  forwarder %d sees the namespace: %+v", p.slot+1, is)
	changed := false
	if is.exists {
		changed = s.view.Put(namespace, is.labels())
	} else {
		changed = s.view.Remove(namespace)
	}
	switch {
	case first:
		s.view.Synced()
		s.realign = true
	case changed:
		s.realign = true
		p.reselect()
		p.enqueueShown()
		if !s.view.Selects(namespace) && !s.isCovered {
			p.compareResource()
		}
	}
}

func (s space) labels() map[string]string {
	if s.label {
		return map[string]string{"on": "true"}
	}
	return nil
}

// align starts the informer that is missing, or stops the surplus one.
func (p *process) align() {
	s := &p.spaces
	s.realign = false
	if s.view.Ready() != nil {
		return
	}
	first, covers := !s.aligned, p.hasAccess() || s.isCovered && !p.isStuck()
	if p.config.scope == separateWatches {
		covers = s.view.Selects(namespace)
	}
	s.aligned = true
	switch {
	case covers && !s.isCovered:
		p.replaceReflector()
		p.reflector.notFirst = !first
		s.isCovered = true
		p.reselect()
	case !covers && s.isCovered:
		s.isCovered = false
		p.drop()
	}
	if first && !covers {
		p.compareResource()
	}
}

// drop stops the informer, because its namespace is no longer selected or access to it is denied.
func (p *process) drop() {
	p.reselect()
	dropped := p.reflector.indexer
	p.replaceReflector()
	for object, o := range dropped {
		if k := keyOf(object); o != nil && !o.Unselected && !p.selects(k) && p.spaces.view.Exists(namespace) {
			p.ledger.AddTombstone(k, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: p.now(), Cause: event.CauseWatch, Object: kept(o)})
			p.enqueue(k)
		}
	}
	p.abandon(func(event.Key) bool { return true }, dropped)
	p.compareResource()
}

// noteSynced is called when the informer has reported its first list.
func (p *process) noteSynced() {
	if p.reflector.notFirst {
		p.abandon(func(k event.Key) bool { return p.reflector.indexer[objectOf(k)] == nil }, p.reflector.indexer)
	}
	p.compareResource()
}

func (p *process) abandon(matches func(event.Key) bool, indexer [len(objectNames)]*event.Object) {
	p.reselect()
	shown := map[event.Key]string{}
	for _, k := range p.ledger.Dirty() {
		if uid := p.shownUID(k, indexer[objectOf(k)]); uid != "" {
			shown[k] = uid
		}
	}
	p.ledger.Abandon(matches, shown)
	for _, k := range p.ledger.Dirty() {
		if matches(k) {
			p.enqueue(k)
		}
	}
}

func (p *process) selects(k event.Key) bool { return p.spaces.view.Selects(k.Namespace) }

// deselect removes an unselected live object from a view. It adds a tombstone, unless the view has one
// or the namespace is gone.
func (p *process) deselect(v *event.View) {
	o := v.Live
	v.Live = nil
	if _, gone := v.Tombstone(string(o.UID)); !gone && p.spaces.view.Exists(namespace) {
		v.Tombstones = append(v.Tombstones, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: p.now(), Cause: event.CauseWatch, Object: kept(o)})
	}
}

// hideDeselections drops the deselections from the view of a selected key until the list is complete,
// because the list may show that the object is back.
func (p *process) hideDeselections(k event.Key, v *event.View) {
	if !p.reflector.synced() && v.Live == nil && p.selects(k) {
		v.Tombstones = slices.DeleteFunc(v.Tombstones, func(t event.Tombstone) bool { return t.Deselected })
	}
}

// SelectsNamespace implements [reconcile.Informers].
func (p *process) SelectsNamespace(namespace string, l map[string]string) bool {
	return p.spaces.view.SelectsLabels(namespace, l)
}

// listSpaces returns the response to a list request for the namespace.
func (w *world) listSpaces() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion(versionText(w.cluster.version))
	if s := w.cluster.space(); s.exists {
		o := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": namespace}}}
		o.SetLabels(s.labels())
		list.Items = append(list.Items, o)
	}
	return list
}
