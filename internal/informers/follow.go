package informers

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/clientgo/restmapper"
	"github.com/kuberelay/kuberelay/internal/event"
)

// target is an object that others refer to, by name: whether it exists is another matter.
type target struct {
	kind            schema.GroupKind
	namespace, name string // namespace is "" where the object is cluster-scoped
}

// follow knows who refers to whom. An object of a resource that is watched only because
// others refer to it is selected while a selected object does.
type follow struct {
	paths  []referencePath
	owners bool          // owners are among the paths
	more   chan struct{} // has a token when a kind is referred to for the first time

	working sync.Mutex // held while references are followed, so that they are in order

	mu       sync.RWMutex
	referrer map[target]map[event.Key]struct{}
	referred map[event.Key][]target
	wanted   map[schema.GroupKind]bool           // kinds that have been referred to since the start
	known    map[schema.GroupKind]event.Resource // of the last discovery, those that may be followed

	complete atomic.Bool // all that may refer to others has synced
}

func newFollow(paths []string) *follow {
	f := &follow{
		more: make(chan struct{}, 1), referrer: map[target]map[event.Key]struct{}{}, referred: map[event.Key][]target{},
		wanted: map[schema.GroupKind]bool{}, known: map[schema.GroupKind]event.Resource{},
	}
	for _, s := range paths {
		p := parsePath(s)
		f.paths = append(f.paths, p)
		f.owners = f.owners || slices.Equal(p.fields, []string{"metadata", ownerReferences})
	}
	return f
}

func (f *follow) on() bool { return len(f.paths) > 0 }

// refers tells whether a selected object refers to one of this kind.
func (f *follow) refers(t target) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.referrer[t]) > 0
}

// targets resolves references of an object, as far as their kinds are known. A kind that
// is not may be defined later.
func (f *follow) targets(k event.Key, refs []event.Reference) []target {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []target
	for _, ref := range refs {
		gk := ref.GroupKind()
		if !f.wanted[gk] {
			f.wanted[gk] = true
			if _, ok := f.known[gk]; ok {
				f.complete.Store(false) // until it has been started, and has synced
			}
			select {
			case f.more <- struct{}{}:
			default:
			}
		}
		t := target{kind: gk, namespace: ref.Namespace, name: ref.Name}
		if r, ok := f.known[gk]; ok && !r.Namespaced {
			t.namespace = ""
		} else if t.namespace == "" {
			t.namespace = k.Namespace // owners are in the same, or cluster-scoped
		}
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// set notes what an object refers to, nil for nothing, and gives the targets that are
// referred to now and were not, or the reverse.
func (f *follow) set(k event.Key, targets []target) (turned []target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.referred[k] {
		if slices.Contains(targets, t) {
			continue
		}
		delete(f.referrer[t], k)
		if len(f.referrer[t]) == 0 {
			delete(f.referrer, t)
			turned = append(turned, t)
		}
	}
	for _, t := range targets {
		if f.referrer[t] == nil {
			f.referrer[t] = map[event.Key]struct{}{}
			turned = append(turned, t)
		}
		f.referrer[t][k] = struct{}{}
	}
	if len(targets) == 0 {
		delete(f.referred, k)
	} else {
		f.referred[k] = targets
	}
	return turned
}

// sources gives the objects of a resource that refer to others.
func (f *follow) sources(gr schema.GroupResource) []event.Key {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var keys []event.Key
	for k := range f.referred {
		if k.GroupResource() == gr {
			keys = append(keys, k)
		}
	}
	return keys
}

// learn takes the kinds of a discovery, and keeps those of groups of which it failed. A
// kind whose scope has become known has other targets, so the objects that refer to it are
// given.
func (f *follow) learn(known map[schema.GroupKind]event.Resource, failed map[string]error) (again []event.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for gk, r := range f.known {
		if _, ok := known[gk]; !ok && failed[gk.Group] != nil {
			known[gk] = r
		}
	}
	changed := map[schema.GroupKind]bool{}
	for gk := range f.wanted {
		was, had := f.known[gk]
		is, has := known[gk]
		if had != has || was.Namespaced != is.Namespaced {
			changed[gk] = true
		}
	}
	f.known = known
	for k, targets := range f.referred {
		if slices.ContainsFunc(targets, func(t target) bool { return changed[t.kind] }) {
			again = append(again, k)
		}
	}
	return again
}

// resources gives what is to be watched because others refer to it. It never becomes
// less while the cluster serves it: what is not referred to any more has yet to be
// deselected.
func (f *follow) resources() []event.Resource {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var all []event.Resource
	for gk := range f.wanted {
		if r, ok := f.known[gk]; ok {
			all = append(all, r)
		}
	}
	return all
}

func (f *follow) resource(gk schema.GroupKind) (event.Resource, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r, ok := f.known[gk]
	return r, ok
}

// followable gives the kinds that may be followed: all that can be watched and are not
// excluded, and that need not be named to be watched.
func (s Selection) followable(c *catalogue) map[schema.GroupKind]event.Resource {
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(c.groups), c, nil)
	never := map[schema.GroupResource]bool{}
	for _, selector := range slices.Concat(s.Exclude, s.UnlessNamed) {
		for _, r := range match(mapper, c, selector) {
			never[r.GroupResource()] = true
		}
	}
	known := map[schema.GroupKind]event.Resource{}
	for _, r := range c.preferred(func(string) bool { return true }) {
		if c.watchable(r) && !never[r.GroupResource()] {
			known[schema.GroupKind{Group: r.Group, Kind: r.Kind}] = r
		}
	}
	return known
}

// refer notes what an object refers to now, and has those looked at that are selected by
// it, or no longer; and what they refer to.
func (s *Set) refer(k event.Key) {
	if !s.follow.on() {
		return
	}
	s.follow.working.Lock()
	defer s.follow.working.Unlock()
	for due := []event.Key{k}; len(due) > 0; {
		k, due = due[0], due[1:]
		targets, known := s.targetsOf(k)
		if known {
			due = append(due, s.turn(k, targets)...)
		}
	}
}

// targetsOf gives what an object refers to. It is false where that cannot be told: nothing
// watches it at present, or what does has not synced. What it has referred to counts then.
func (s *Set) targetsOf(k event.Key) (targets []target, known bool) {
	w := s.watchedFor(k.GroupResource())
	if w == nil {
		return nil, false
	}
	if !s.selects(k) {
		return nil, true
	}
	i := w.informer(k)
	if i == nil {
		return nil, false
	}
	if o := i.get(k); o != nil && o.Unselected {
		return nil, true // its owners are known, but it selects nothing
	} else if o != nil {
		return s.follow.targets(k, o.References), true
	}
	return nil, i.synced()
}

// turn notes what an object refers to, enqueues what is selected by that now, or no longer,
// and gives it.
func (s *Set) turn(k event.Key, targets []target) (turned []event.Key) {
	for _, t := range s.follow.set(k, targets) {
		r, ok := s.follow.resource(t.kind)
		if !ok {
			continue
		}
		next := r.Key(t.namespace, t.name)
		if w := s.watchedFor(next.GroupResource()); w != nil && w.followed {
			s.enqueue(next)
			turned = append(turned, next)
		}
	}
	return turned
}

// referNothing is for the objects of a resource that is certainly gone, or certainly not
// selected.
func (s *Set) referNothing(gr schema.GroupResource) {
	for _, k := range s.follow.sources(gr) {
		s.follow.working.Lock()
		turned := s.turn(k, nil)
		s.follow.working.Unlock()
		for _, next := range turned {
			s.refer(next)
		}
	}
}

// referAll finds out what all objects of an informer refer to, once it has synced.
func (s *Set) referAll(w *watched, i *informer) {
	if !s.follow.on() {
		return
	}
	for _, name := range i.shared.GetStore().ListKeys() {
		s.refer(i.key(name))
	}
	for _, k := range s.follow.sources(w.groupResource()) {
		if i.namespace == "" || i.namespace == k.Namespace {
			s.refer(k) // what is gone refers to nothing
		}
	}
	s.completeFollowing()
}

// completeFollowing finds out whether all that may refer to others has been seen: until
// then nothing is said to be no longer referred to.
func (s *Set) completeFollowing() {
	if !s.follow.on() || !s.followingCompletes() {
		return
	}
	s.eachWatched(func(w *watched) {
		if !w.followed {
			return
		}
		for _, i := range w.all() {
			for _, name := range i.shared.GetStore().ListKeys() {
				s.enqueueBehind(i.key(name))
			}
		}
		s.config.Compare(w.groupResource())
	})
	s.config.Discovered() // what nothing refers to any more may be of resources that nothing watches
}

// followingCompletes tells whether it is complete and was not before.
func (s *Set) followingCompletes() bool {
	s.follow.working.Lock()
	defer s.follow.working.Unlock()
	a := s.lastAnswer()
	// A group that fails may have what refers to others.
	complete := a != nil && len(a.catalogue.failed) == 0
	s.eachWatched(func(w *watched) { complete = complete && w.listed() })
	for _, r := range s.follow.resources() {
		complete = complete && s.watchedFor(r.GroupResource()) != nil
	}
	return !s.follow.complete.Swap(complete) && complete
}

// startFollowed starts what is referred to for the first time.
func (s *Set) startFollowed(ctx context.Context) {
	if a := s.lastAnswer(); a != nil {
		s.apply(ctx, a)
		s.completeFollowing()
	}
}
