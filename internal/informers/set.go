// Package informers watches each selected resource of a cluster with shared informers. It starts and
// stops them as discovery requires, and provides the state of every key.
//
// The package guarantees:
//
//   - It enqueues a key after every change of its object that the API server reports, and again at
//     every resync. [Set.Lookup] then shows the state after that change or a later state.
//   - A deleted UID has a tombstone until the bus has the delete.
//   - A failed list, a failed discovery, or a stopped informer never creates a tombstone.
//
// The package does not detect changes that happened while it was not running. Package reconcile
// finds them.
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
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/informers/cow"
	"github.com/kuberelay/kuberelay/internal/informers/firstsync"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/informers/history"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/references"
)

// Config configures a [Set]. All fields are required unless noted.
type Config struct {
	Dynamic   dynamic.Interface
	Streams   *apistream.Client // for the lists and watches of selected resources
	Discovery kubediscovery.DiscoveryInterface

	// Reads reads single objects. Many reads can run at once, and lists and watches must not wait for
	// them.
	Reads dynamic.Interface

	Ledger    *ledger.Ledger // receives the changes that the watches show
	Converter *decode.Converter

	// Shape returns which part of a resource's objects to publish. If Shape is nil, whole objects are
	// published.
	Shape func(event.Resource) decode.Shape

	// Access checks which resources the forwarder may read. If it is nil, only failed requests show
	// that access is denied.
	Access *discovery.Access

	Selection     discovery.Selection
	Namespaces    discovery.NamespaceSelection
	LabelSelector string // applied by the API server, like FieldSelector; may be empty
	FieldSelector string
	Resync        time.Duration // the interval at which every key is enqueued again; 0 for never
	Rediscover    time.Duration // the interval of discovery while no CustomResourceDefinition changes

	// Follow contains the paths of the reference fields to follow. The referenced objects are
	// selected too. See [references.New]. If Follow contains [references.Owners], a view contains
	// the owner of its object.
	Follow []string

	// PublishDeselected enables deselected events for objects on the bus that another configuration
	// selected and the current one does not. If false, these objects stay on the bus.
	PublishDeselected bool

	// Standby makes the Set enqueue nothing before [Set.StartLeading]. Remember is the time for
	// which a standby remembers changes and deletes. It must be at least the longest time without a
	// leader. Reconciliation finds the changes and deletes that the standby forgets.
	Standby  bool
	Remember time.Duration

	// Enqueue is called with every changed key. EnqueueLowPriority is called with the keys of
	// background work, such as the first list and a resync. They must not block.
	Enqueue, EnqueueLowPriority func(event.Key)

	// Compare requests a comparison of the bus with the cluster for a resource, for example when the
	// resource has synced or is no longer served. It must not block.
	Compare func(schema.GroupResource)

	// Discovered is called when the result of the first discovery is in effect. From then on, a
	// resource that is not watched is not selected. With Follow, Discovered is called again whenever
	// all references have become known. It must not block.
	Discovered func()

	// Markers stores the markers of first syncs.
	Markers firstsync.Markers

	// InformerMetrics receives the metrics of client-go's informers. It may be nil.
	InformerMetrics cache.InformerMetricsProvider

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Set manages the informers of one cluster. Make one with [New].
type Set struct {
	config   Config
	log      *slog.Logger
	counters *health.Counters
	ledger   *ledger.Ledger
	raised   chan struct{} // has a token when an epoch might be due
	refused  chan struct{} // has a token when the API server might no longer serve a watched version
	terms    *terms

	namespaces  *discovery.Namespaces
	references  *references.Graph
	definitions atomic.Pointer[discovery.Definitions] // nil before Run
	server      *history.Server
	survey      survey.Survey

	watched cow.Map[schema.GroupResource, *watched] // changed while mu is held

	mu         sync.RWMutex
	epochs     map[schema.GroupResource]uint16 // see Epoch
	firstEpoch uint16                          // minimum epoch of every resource
	answer     *survey.Answer                  // result of the last successful discovery, nil before the first
	failed     error                           // error of the last discovery
	restarting bool                            // resources have left watched, and might return
	selections atomic.Uint64                   // see reselect
}

// New returns a Set that watches nothing until [Set.Run].
func New(c Config) *Set {
	s := &Set{
		config: c, log: c.Logger, ledger: c.Ledger, raised: make(chan struct{}, 1), refused: make(chan struct{}, 1),
		epochs: map[schema.GroupResource]uint16{}, namespaces: discovery.NewNamespaces(c.Namespaces),
		terms: newTerms(), server: history.NewServer(c.Discovery),
	}
	s.namespaces.Changing = s.reselectNamespaced
	s.references = references.New(c.Follow, referring{s})
	s.survey = survey.Survey{
		Discovery: c.Discovery, Reads: c.Reads, Selection: c.Selection, Follows: s.references.Enabled(),
		Refused: func(gr schema.GroupResource) bool { return s.watchedFor(gr).refused() }, Missing: s.noteMissing,
	}
	if !c.Standby {
		s.StartLeading()
	}
	c.Registerer.MustRegister(collector{s})
	s.counters = health.NewCounters(c.Registerer)
	return s
}

func (s *Set) shapeOf(r event.Resource) decode.Shape {
	if s.config.Shape == nil {
		return decode.Shape{}
	}
	return s.config.Shape(r)
}

// Lookup returns the current view of a key. It does not block.
func (s *Set) Lookup(k event.Key) event.View {
	v := event.View{Cause: event.CauseReconcile}
	w := s.watchedFor(k.GroupResource())
	isListing := false
	if w == nil {
		v.Epoch = s.Epoch(k.GroupResource())
	} else {
		v.Resource, v.Epoch = w.resource, w.epoch
		i := w.informer(k)
		if isListing = i == nil || !i.synced(); i != nil {
			v.Version = i.version()
			v.Live = i.get(k) // after isListing and Version, which must not be newer than Live
			// During the first list, the indexer has no version. An object in it has one.
			if v.Version == "" && v.Live != nil {
				v.Version = v.Live.ResourceVersion
			}
		}
	}
	s.ledger.Describe(k, &v)
	if isListing && v.Live == nil && len(v.Tombstones) > 0 && s.selects(k) {
		// The object might have returned to the selection. After the list, the informer shows it, or
		// reconciliation finds that it is still deselected.
		v.Tombstones = slices.DeleteFunc(v.Tombstones, func(t event.Tombstone) bool { return t.Deselected })
	}
	switch {
	case v.Live == nil:
	case v.Live.Unselected:
		s.deselectByContent(&v)
	case !s.selects(k):
		s.deselect(k, &v)
	}
	if v.Live != nil {
		// Ignore tombstones of a live object. Such a tombstone is either older than the object, which
		// left the selection and returned, or newer than the cache, which will show the delete soon.
		v.Tombstones = slices.DeleteFunc(v.Tombstones, func(t event.Tombstone) bool { return t.UID == string(v.Live.UID) })
	}
	s.describeOwners(k, &v)
	if v.Observed.IsZero() {
		v.Observed = s.config.Now()
	}
	return v
}

// Unpublishable records that the current state of a key cannot be published, so that a first sync does
// not wait for that state.
func (s *Set) Unpublishable(k event.Key) {
	s.ledger.MarkUnpublishable(k)
	s.Settled(k)
}

// Watched returns the resources that have informers, in no particular order.
func (s *Set) Watched() []schema.GroupResource { return slices.Collect(maps.Keys(s.watched.All())) }

// Resources returns the watched resources with their versions and kinds, in no particular order.
func (s *Set) Resources() []event.Resource {
	var all []event.Resource
	s.eachWatched(func(w *watched) { all = append(all, w.resource) })
	return all
}

// Referring returns the resources whose references can be followed: the watched resources and the
// resources that can be watched because objects of other resources refer to them.
func (s *Set) Referring() []event.Resource {
	all := s.Resources()
	if a := s.lastAnswer(); a != nil {
		all = slices.AppendSeq(all, maps.Values(a.Followable))
	}
	return all
}

// Settled is called when the bus might have received changes of a key that it lacked. It completes a
// first sync that waited only for this key.
func (s *Set) Settled(k event.Key) {
	if w := s.watchedFor(k.GroupResource()); w != nil {
		w.firstSync.Advance()
	}
}

func (s *Set) watchedFor(gr schema.GroupResource) *watched { return s.watched.All()[gr] }

// lastAnswer returns the answer that is in effect, or nil before the first answer.
func (s *Set) lastAnswer() *survey.Answer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.answer
}

// eachWatched calls f with every watched resource.
func (s *Set) eachWatched(f func(*watched)) {
	for _, w := range s.watched.All() {
		f(w)
	}
}

// EnqueueAll enqueues every key in the informers, as a resync does. It also enqueues every dirty
// key, because the object of a dirty key might be missing from the informers.
func (s *Set) EnqueueAll() {
	s.eachWatched(s.reselect)
	for _, k := range s.ledger.Dirty() {
		s.EnqueueLowPriority(k)
	}
	s.eachWatched(func(w *watched) {
		for k := range w.keys() {
			s.EnqueueLowPriority(k)
		}
	})
}
