// Package informers watches each selected resource of a cluster with a shared informer, which it
// starts and stops as discovery requires. It knows the state of every key.
//
// It guarantees that it enqueues a key after every change of its object that the API server
// reports, and again at every resync; that [Set.Lookup] shows the state after that change or a
// later one; and that it keeps a tombstone of each deleted UID until the bus has the delete. A
// failed list, a failed discovery and a stopped informer never make a tombstone.
//
// It does not know what happened while it was not running. Package reconcile does.
package informers

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	kubediscovery "k8s.io/client-go/discovery"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/references"
)

// Config configures a [Set]. All fields are required unless noted.
type Config struct {
	Dynamic   dynamic.Interface
	Streams   *apistream.Client // for the lists and watches of selected resources
	Discovery kubediscovery.DiscoveryInterface

	// Reads, if not nil, reads single objects in place of Dynamic. There may be many reads at
	// once, and lists and watches must not wait for them.
	Reads dynamic.Interface

	Ledger    *ledger.Ledger // gets what the watches show
	Converter *event.Converter

	// Shape returns which part of the objects of a resource is published. If Shape is nil,
	// everything is.
	Shape func(event.Resource) event.Shape

	// Access finds out what the forwarder may read. If it is nil, only failed requests tell.
	Access *discovery.Access

	Selection     discovery.Selection
	Namespaces    discovery.NamespaceSelection
	LabelSelector string // applied by the API server, like FieldSelector; may be empty
	FieldSelector string
	Resync        time.Duration // the interval at which every key is enqueued again, 0 for never
	Rediscover    time.Duration // the interval of discovery while no CustomResourceDefinition changes

	// Follow has the paths of fields whose referenced objects are selected too; see
	// [references.New]. If it has [references.Owners], a view has the owner of its object.
	Follow []string

	// PublishDeselected publishes a deselected event for the objects on the bus that another
	// configuration selected and this one does not. Otherwise they stay on the bus.
	PublishDeselected bool

	// Standby makes the Set enqueue nothing before [Set.StartLeading]. Remember is how long a
	// standby remembers changes and deletes, at least the longest time without a leader.
	// Reconciliation finds what it forgets.
	Standby  bool
	Remember time.Duration

	// Enqueue is called with every changed key, EnqueueLowPriority with the keys of background
	// work: the first list, and a resync. They must not block.
	Enqueue, EnqueueLowPriority func(event.Key)

	// Compare is called when a resource has synced or is no longer served. It requests a
	// comparison of the bus with the cluster. It must not block.
	Compare func(schema.GroupResource)

	// Discovered is called when the result of the first discovery is in effect: from then on, a
	// resource that is not watched is not selected. With Follow it is called again whenever all
	// references have become known. It must not block.
	Discovered func()

	// Snapshots keeps the markers of first syncs.
	Snapshots Snapshots

	// InformerMetrics gets the metrics of client-go's informers; nil for none.
	InformerMetrics cache.InformerMetricsProvider

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Set has the informers of one cluster. Make one with [New].
type Set struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	ledger  *ledger.Ledger
	raised  chan struct{} // has a token when an epoch may be due
	refused chan struct{} // has a token when the API server may no longer serve a watched version
	terms   *terms

	namespaces  *discovery.Namespaces
	references  *references.Graph
	definitions atomic.Pointer[discovery.Definitions] // nil before Run
	server      server

	mu         sync.RWMutex
	watched    map[schema.GroupResource]*watched
	epochs     map[schema.GroupResource]uint16 // see Epoch
	firstEpoch uint16                          // of every resource
	answer     *answer                         // of the last discovery that succeeded, nil before the first
	failed     error                           // of the last discovery
	selections atomic.Uint64                   // see reselect
	stopped    stopped                         // the resources that were stopped last
}

// answer is the result of discovery, and what the selection picks of it.
type answer struct {
	catalog    *discovery.Catalog
	resolution discovery.Resolution
	followable map[schema.GroupKind]event.Resource
	similar    map[string]string // by unmatched selector, see Unmatched
}

// New makes a Set that watches nothing until [Set.Run].
func New(c Config) *Set {
	s := &Set{
		config: c, log: c.Logger, ledger: c.Ledger, raised: make(chan struct{}, 1), refused: make(chan struct{}, 1),
		watched: map[schema.GroupResource]*watched{}, epochs: map[schema.GroupResource]uint16{}, namespaces: discovery.NewNamespaces(c.Namespaces),
		terms: newTerms(),
	}
	s.references = references.New(c.Follow, referring{s})
	if !c.Standby {
		s.StartLeading()
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

// Lookup returns what is known of a key. It does not block.
func (s *Set) Lookup(k event.Key) event.View {
	v := event.View{Cause: event.CauseReconcile}
	if w := s.watchedFor(k.GroupResource()); w == nil {
		v.Epoch = s.Epoch(k.GroupResource())
	} else {
		v.Resource, v.Epoch = w.resource, w.epoch
		if i := w.informer(k); i != nil {
			v.Version = i.version() // before Live
			v.Live = i.get(k)
		}
	}
	s.ledger.Describe(k, &v)
	switch {
	case v.Live == nil:
	case v.Live.Unselected:
		s.deselectByContent(&v)
	case !s.selects(k):
		s.deselect(k, &v)
	}
	if v.Live != nil {
		// A live object is not gone. A tombstone of its UID is either older, because the object
		// left the selection and came back, or newer than the cache, which will report the delete
		// soon.
		v.Tombstones = slices.DeleteFunc(v.Tombstones, func(t event.Tombstone) bool { return t.UID == string(v.Live.UID) })
	}
	s.describeOwners(k, &v)
	if v.Observed.IsZero() {
		v.Observed = s.config.Now()
	}
	return v
}

// Unpublishable records that the bus refuses the present state of a key, so that a first sync
// does not wait for it.
func (s *Set) Unpublishable(k event.Key) {
	s.ledger.MarkUnpublishable(k)
	if w := s.watchedFor(k.GroupResource()); w != nil {
		s.advance(w)
	}
}

// Watched returns the resources that have informers, in no order.
func (s *Set) Watched() []schema.GroupResource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.watched))
}

// Resources returns the watched resources with their versions and kinds, in no order.
func (s *Set) Resources() []event.Resource {
	var all []event.Resource
	s.eachWatched(func(w *watched) { all = append(all, w.resource) })
	return all
}

// Referring returns the resources whose references can be followed: those that are watched, and
// those that may be watched because others refer to them.
func (s *Set) Referring() []event.Resource {
	all := s.Resources()
	if a := s.lastAnswer(); a != nil {
		all = slices.AppendSeq(all, maps.Values(a.followable))
	}
	return all
}

// HasTombstone reports whether a delete of the key is due.
func (s *Set) HasTombstone(k event.Key) bool { return s.ledger.HasTombstone(k) }

// Settled records that the bus lacks less of a key than before, so that a first sync may be
// complete.
func (s *Set) Settled(k event.Key) {
	if w := s.watchedFor(k.GroupResource()); w != nil {
		s.advance(w)
	}
}

func (s *Set) watchedFor(gr schema.GroupResource) *watched {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.watched[gr]
}

// lastAnswer returns the answer that is in effect, nil before the first.
func (s *Set) lastAnswer() *answer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.answer
}

// eachWatched calls f with every resource that is watched now.
func (s *Set) eachWatched(f func(*watched)) {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.watched))
	s.mu.RUnlock()
	for _, w := range all {
		f(w)
	}
}

// EnqueueAll enqueues every key that an informer has, as a resync does, and every dirty key,
// whose object may be gone.
func (s *Set) EnqueueAll() {
	s.eachWatched(s.reselect)
	for _, k := range s.ledger.Dirty() {
		s.EnqueueLowPriority(k)
	}
	s.eachWatched(func(w *watched) {
		for _, i := range w.all() {
			for _, name := range i.shared.GetStore().ListKeys() {
				s.EnqueueLowPriority(i.key(name))
			}
		}
	})
}

// reads returns the client for single objects.
func (s *Set) reads() dynamic.Interface {
	if s.config.Reads == nil {
		return s.config.Dynamic
	}
	return s.config.Reads
}
