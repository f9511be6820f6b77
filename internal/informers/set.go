// Package informers watches the selected resources of a cluster: one shared
// informer for each, found by discovery while running, and for every key what is
// known of it now.
//
// It guarantees that a key is handed to Enqueue after every change of its object
// that the API server reports, and again at every resync; that Lookup shows the
// state after that change or a later one; and that a tombstone is kept for each
// UID that is gone until the bus has its delete. A list that failed, a discovery
// that failed, and an informer that was stopped never make a tombstone.
//
// It does not remember what happened while it was not running: that is found by
// comparing with the checkpoint.
package informers

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Config says what to watch and whom to tell. Fields without a remark are
// required.
type Config struct {
	Dynamic   dynamic.Interface
	Streams   *apistream.Client // for the lists and watches of what is selected
	Discovery discovery.DiscoveryInterface

	// Reads, if not nil, is asked for single objects in place of Dynamic. There may be
	// many of them at once, which lists and watches must not wait for.
	Reads dynamic.Interface

	Converter *event.Converter

	// Shape says what is sent of the objects of a resource; nil for all of all.
	Shape func(event.Resource) event.Shape

	// Access tells what we may do; nil to find out by trying only. Rules tells it of a
	// whole namespace at once; nil to ask for each resource.
	Access Access
	Rules  Rules

	Selection     Selection
	Namespaces    NamespaceSelection
	LabelSelector string // passed to the API server, as is the next; may be empty
	FieldSelector string
	Resync        time.Duration // every key is enqueued again this often, 0 for never
	Rediscover    time.Duration // discovery is asked again this often, and when CustomResourceDefinitions change

	// Follow are the paths of fields that refer to objects, which are then selected too:
	// «path» or «resource:path». With «ownerReferences» among them a View has its owner.
	Follow []string

	// TellDeselected has the bus told of what another configuration had selected and
	// this one does not, as of what leaves the selection while we run. Otherwise it is
	// left alone.
	TellDeselected bool

	// Standby has the Set hand out nothing before [Set.Lead]. Remember is how long it then
	// remembers when and how objects have changed or gone: as long as there may be nobody
	// who writes. What it forgets is found by comparing with the checkpoint.
	Standby  bool
	Remember time.Duration

	// Enqueue is told of every key to look at, EnqueueBehind of those that can wait for
	// all others: of the first list, and of a resync. They must not block.
	Enqueue, EnqueueBehind func(event.Key)

	// Compare is told that a resource has synced, or that the cluster does not
	// serve it any more: what the checkpoint knows of it is to be compared with
	// what is there. It must not block.
	Compare func(schema.GroupResource)

	// Discovered is called when the first discovery has been acted upon: from then on a
	// resource that is not watched is known to be so on purpose. With Follow it is called
	// again whenever it has become known what is referred to. It must not block.
	Discovered func()

	// Snapshots keeps the markers of first syncs.
	Snapshots Snapshots

	// InformerMetrics is client-go's; nil for none.
	InformerMetrics cache.InformerMetricsProvider

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Set is the informers of one cluster. Make one with [New].
type Set struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	dirty   *dirty
	epoch   atomic.Uint32 // see Epoch
	raised  chan struct{} // has a token when nextEpoch may be above epoch
	terms   *terms

	namespaces *namespaces
	follow     *follow
	few        int      // fewNamespaces, but in tests
	everything struct { // whether all may be listed and watched; see mayAll
		sync.Mutex
		asked   time.Time
		allowed bool
	}
	rules rulesByNamespace

	mu        sync.RWMutex
	watched   map[schema.GroupResource]*watched
	nextEpoch uint16  // never below epoch
	answer    *answer // of the last discovery that succeeded, nil before the first
	failed    error   // of the last discovery
	stopped   stopped // the resources that were watched last
}

// answer is what a discovery said and came to.
type answer struct {
	catalogue  *catalogue
	resolution Resolution
	followable map[schema.GroupKind]event.Resource
}

// New makes a Set that watches nothing until [Set.Run].
func New(c Config) *Set {
	s := &Set{
		config: c, log: c.Logger, dirty: newDirty(), raised: make(chan struct{}, 1),
		watched: map[schema.GroupResource]*watched{}, namespaces: newNamespaces(c.Namespaces), follow: newFollow(c.Follow), few: fewNamespaces,
		terms: newTerms(),
	}
	if !c.Standby {
		s.Lead()
	}
	c.Registerer.MustRegister(collector{s})
	s.metrics = newMetrics(c.Registerer)
	return s
}

func (s *Set) shapeOf(r event.Resource) event.Shape {
	if s.config.Shape == nil {
		return event.Shape{}
	}
	return s.config.Shape(r)
}

// Lookup gives what is known of a key. It does not block.
func (s *Set) Lookup(k event.Key) event.View {
	v := event.View{Cause: event.CauseReconcile, Epoch: s.Epoch()}
	if w := s.watchedFor(k.GroupResource()); w != nil {
		v.Resource = w.resource
		if i := w.informer(k); i != nil {
			v.Live = i.get(k)
		}
	}
	s.dirty.describe(k, &v)
	switch {
	case v.Live == nil:
	case v.Live.Unselected:
		s.unselect(&v)
	case !s.selects(k):
		s.deselect(k, &v)
	}
	if v.Live != nil {
		// What the indexer shows is not gone. A tombstone of the same UID is
		// older (it left the selection and is back) or ahead of the indexer
		// (whose own notification of the delete is on its way).
		v.Tombstones = slices.DeleteFunc(v.Tombstones, func(t event.Tombstone) bool { return t.UID == string(v.Live.UID) })
	}
	s.describeOwners(k, &v)
	if v.Observed.IsZero() {
		v.Observed = s.config.Now()
	}
	return v
}

// deselect makes of what the indexer shows and is not selected what is not there.
func (s *Set) deselect(k event.Key, v *event.View) {
	o := v.Live
	v.Live = nil
	if _, gone := v.Tombstone(string(o.UID)); gone || !s.namespaces.exists(k.Namespace) || !s.tells(k) {
		return // of a namespace that is gone the watch of the resource will say what is deleted
	}
	v.Tombstones = append(v.Tombstones, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(o)})
}

// unselect does so for what is not selected by its content. There is no tombstone where
// it was not when it was first seen: the bus may have it since before.
func (s *Set) unselect(v *event.View) {
	uid := string(v.Live.UID)
	v.Live = nil
	if failpoint.Bug("keep-unselected") {
		v.Tombstones = nil
		return
	}
	if _, gone := v.Tombstone(uid); !gone {
		v.Tombstones = append(v.Tombstones, event.Tombstone{UID: uid, Deselected: true, Observed: s.config.Now(), Cause: v.Cause})
	}
}

// kept gives what a tombstone is to have as the last state: nil where an object's body was
// never kept, since it was not to be sent. The bus has its last state then, if it has any.
func kept(o *event.Object) *event.Object {
	if o.Body.None() {
		return nil
	}
	return o
}

// Unpublishable says that the bus will not take the present state of a key, so that a
// first sync does not wait for it.
func (s *Set) Unpublishable(k event.Key) {
	s.dirty.excuse(k)
	if w := s.watchedFor(k.GroupResource()); w != nil {
		s.advance(w)
	}
}

// Watched gives the resources that informers have been started for, in no order.
func (s *Set) Watched() []schema.GroupResource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.watched))
}

// Resources gives them with their versions and kinds.
func (s *Set) Resources() []event.Resource {
	var all []event.Resource
	s.eachWatched(func(w *watched) { all = append(all, w.resource) })
	return all
}

// Buried tells whether a deleted object of the key is remembered.
func (s *Set) Buried(k event.Key) bool { return s.dirty.buried(k) }

// Acknowledged says that the bus now holds an event of a key, and which state that is of.
func (s *Set) Acknowledged(k event.Key, acked event.Acked, o *event.Object) {
	s.Settle(k, acked, "")
	if acked.Live() {
		s.dirty.follows(k, o)
	}
}

// Settle drops what is remembered of a key and is covered by what the bus now
// holds of it. The tombstone of attempted stays, a UID that the bus may show
// although it has not said so; "" for none.
func (s *Set) Settle(k event.Key, acked event.Acked, attempted string) {
	if !s.sends(k) {
		s.dirty.abandonKey(k)
	}
	s.dirty.settle(k, acked, attempted)
	if w := s.watchedFor(k.GroupResource()); w != nil {
		s.advance(w)
	}
}

func (s *Set) watchedFor(gr schema.GroupResource) *watched {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.watched[gr]
}

// lastAnswer is nil before the first discovery has been acted upon.
func (s *Set) lastAnswer() *answer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.answer
}

func (s *Set) onAdd(i *informer, o *event.Object, initial bool) {
	k := i.resource.Key(o.Namespace, o.Name)
	i.count(nil, o)
	s.refer(k)
	enqueue := s.enqueue
	if initial {
		enqueue = s.enqueueBehind
	}
	if o.Unselected || !s.selects(k) {
		enqueue(k) // the bus may show it
		return
	}
	cause, first := event.CauseWatch, false
	if initial {
		if s.config.Standby && !i.snapshot.begun.Load() {
			return // Lead hands it out
		}
		// What a namespace that is selected later brings is not of the first sync.
		cause, first = event.CauseReconcile, !i.snapshot.done.Load() && !i.snapshot.synced.Load()
		if first {
			cause = event.CauseSnapshot
		}
	}
	s.dirty.observe(k, nil, o, cause, first, s.config.Now())
	enqueue(k)
	if first {
		failpoint.Hit("first-sync")
	}
}

func (s *Set) onUpdate(i *informer, old, o *event.Object) {
	k := i.resource.Key(o.Namespace, o.Name)
	if old.UID != o.UID { // a delete and a create, joined by the API server's cache or a relist
		s.dirty.bury(k, event.Tombstone{UID: string(old.UID), Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(old)})
	}
	if old != o {
		i.count(old, o)
		s.refer(k)
	}
	if old.UID == o.UID && old.ResourceVersion == o.ResourceVersion { // a resync, or a list
		s.enqueueBehind(k)
		return
	}
	switch {
	case !s.selects(k):
	case !o.Unselected:
		var before *event.Object // at rest it is somebody else who writes
		if old.UID == o.UID && s.takesPart(k) {
			before = kept(old)
		}
		s.dirty.observe(k, before, o, event.CauseWatch, false, s.config.Now())
	case !old.Unselected && old.UID == o.UID:
		s.dirty.bury(k, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(old)})
	}
	s.enqueue(k)
}

func (s *Set) onDelete(i *informer, deleted any) {
	missed, wasMissed := deleted.(cache.DeletedFinalStateUnknown)
	if wasMissed {
		deleted = missed.Obj // the watch missed the delete, and a later list showed it
	}
	o, ok := deleted.(*event.Object)
	if !ok { // client-go does not know what it was: the reconciler finds out
		i.objects.Add(-1)
		s.config.Compare(i.resource.GroupResource())
		return
	}
	k := i.resource.Key(o.Namespace, o.Name)
	i.count(o, nil)
	if failpoint.Bug("drop-tombstone") {
		return
	}
	s.dirty.bury(k, event.Tombstone{UID: string(o.UID), Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(o)})
	s.refer(k)
	if w := s.watchedFor(k.GroupResource()); w != nil {
		s.advance(w) // it may have been the last of the first sync
	}
	s.enqueue(k)
}

func (s *Set) watchFailed(i *informer, err error) {
	if isExpected(err) {
		return
	}
	i.doubtHistory()
	if !i.setFailing(err, s.config.Now()) {
		return
	}
	if w := s.watchedFor(i.resource.GroupResource()); w != nil && apierrors.IsForbidden(err) {
		w.lookAgain() // there may be another way
	}
	if s.follow.owners && !i.synced() {
		s.EnqueueAll() // some may wait for owners that cannot be read
	}
	s.log.Warn("watch fails; will be tried again", "resource", i.resource.GroupResource().String(), "namespace", i.namespace, "err", err)
}
