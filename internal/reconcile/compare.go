// Package reconcile compares what the bus has of a resource with the cluster. It finds what
// happened while nothing watched the resource: deleted objects, objects that left the selection,
// and a history that went back.
//
// It infers a delete only if a consistent read confirms it: a read of the object, of its
// namespace, or of the definition or APIService of its resource. The cache of an informer or of
// an API server may be behind the bus. A failed read proves nothing.
//
// It publishes nothing. It reports to the informers what it finds, and they enqueue the key.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Informers is what a comparison needs of the informers. Only RenewMarkers may block.
type Informers interface {
	DescribeResource(schema.GroupResource) ResourceView
	DescribeObject(event.Key) ObjectView
	Marks

	// RenewMarkers makes the informers write the snapshot markers of a resource again if the bus
	// lost them.
	RenewMarkers(context.Context, schema.GroupResource) error
}

// Marks takes the conclusions of a comparison.
type Marks interface {
	// AddTombstone records that a UID is gone or deselected, and enqueues the key.
	AddTombstone(event.Key, event.Tombstone)

	// MarkOutlived records that a consistent read confirmed the informer's state, although the
	// bus has a delete or a foreign event at this position. It enqueues the key.
	MarkOutlived(k event.Key, position uint64)

	EnqueueLowPriority(event.Key)

	// RaiseEpoch makes the informers of a resource restart in a later epoch.
	RaiseEpoch(gr schema.GroupResource, to uint16)

	// ForgetReferences forgets the references of the objects of a resource that is gone.
	ForgetReferences(schema.GroupResource)
}

// Config configures a [Comparer]. All fields are required unless noted.
type Config struct {
	Informers Informers
	Discovery discovery.DiscoveryInterface
	Reads     dynamic.Interface // for consistent reads

	// Each calls read with 0 to n-1, and returns the first error. If it is nil, up to 16 calls
	// run at a time, and none begins after an error.
	Each func(ctx context.Context, n int, read func(context.Context, int) error) error

	// PublishDeselected publishes a deselected event for objects on the bus that an earlier
	// configuration selected and this one does not. Otherwise they stay on the bus.
	PublishDeselected bool

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Comparer compares the bus with the cluster. Make one with [New].
type Comparer struct {
	Config
	metrics *metrics
	answers answers
}

// New makes a Comparer and registers its metrics.
func New(c Config) *Comparer {
	if c.Each == nil {
		c.Each = eachConcurrently
	}
	return &Comparer{Config: c, metrics: newMetrics(c.Registerer), answers: answers{of: map[event.Key]answer{}}}
}

// Comparison counts what one comparison found.
type Comparison struct {
	Deleted    int // deleted while nothing watched them; a delete is due
	Deselected int // they exist but are no longer selected; a deselected event is due
	OutOfScope int // they exist but are no longer selected, and stay on the bus
	Waiting    int // the informers have not synced, or are behind the bus and will catch up
	Outlived   int // they exist in the version of their delete on the bus; a create is due
	Restored   bool
}

// Reconcile compares what the bus has of one resource with the cluster, and enqueues every key
// that differs. It renews the snapshot markers that the bus has lost.
//
// It concludes nothing from an informer that has not synced, and nothing about a resource while
// it is uncertain whether the cluster serves it. After an error, everything that could be
// confirmed is recorded. Call it again for the rest.
//
// If a consistent read returns an object in an older version than the bus has, the history
// of the resource went back: etcd was restored from a backup, or an aggregated API server
// lost its storage. A new epoch of the resource begins.
func (c *Comparer) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	c.answers.prune(c.Now())
	if err := c.Informers.RenewMarkers(ctx, gr); err != nil {
		return Comparison{}, fmt.Errorf("renew the snapshot markers of %s: %w", gr, err)
	}
	found, err := c.Confirm(ctx, gr, acked)
	c.metrics.setOutOfScope(gr.String(), found.OutOfScope, c.Informers.DescribeResource(gr).Watched)
	return found, err
}

// Confirm is Reconcile for a few keys of a resource. If the bus and an informer contradict
// each other about an object, Confirm reads it once and remembers the answer: while neither
// changes, it reads the object again only after a pause, which grows.
func (c *Comparer) Confirm(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	r := c.Informers.DescribeResource(gr)
	switch {
	case !r.Watched && r.Catalog == nil:
		return Comparison{}, nil // the first discovery requests another comparison
	case !r.Watched:
		return c.compareUnwatched(ctx, gr, r.Catalog, acked)
	}
	p := pass{Comparer: c, resource: r.Resource, epoch: r.Epoch, namespaces: map[string][]pair{}, leaving: map[string][]pair{}}
	for k, a := range acked {
		if a.UID != "" {
			p.compare(pair{k, a})
		}
	}
	err := p.readObjects(ctx)
	if p.found.Restored {
		c.Informers.RaiseEpoch(gr, event.NextEpoch(r.Epoch))
	}
	if err == nil {
		err = p.readNamespaces(ctx)
	}
	if err == nil {
		err = p.listLeaving(ctx)
	}
	return p.found, err
}

// pair is a key and what the bus has of it.
type pair struct {
	key   event.Key
	acked event.Acked
}

// pass is one comparison of a watched resource: its findings, and the keys that need a read.
type pass struct {
	*Comparer
	resource event.Resource
	epoch    uint16
	found    Comparison

	objects    []pair            // to be read
	namespaces map[string][]pair // to be read, with their objects
	leaving    map[string][]pair // by namespace: deselected or gone, which a list of the namespace decides
}

func (p *pass) compare(of pair) {
	v := p.Informers.DescribeObject(of.key)
	decision := decide(p.resource, p.epoch, of, v)
	if decision == readObject && v.Live != nil && p.answers.isAnswered(of.key, questionOf(v.Live, of.acked, p.epoch), p.Now()) {
		decision = wait
	}
	switch decision {
	case readObject:
		p.objects = append(p.objects, of)
	case readNamespace:
		p.namespaces[of.key.Namespace] = append(p.namespaces[of.key.Namespace], of)
	case listNamespace:
		p.leaving[of.key.Namespace] = append(p.leaving[of.key.Namespace], of)
	default:
		p.apply(decision, of, &p.found)
	}
}

// errBehind makes the caller compare again. If the delete were published before the watch shows
// the object, the late notifications of the watch would create and delete it again.
var errBehind = errors.New("the watch is behind the bus")

// apply records a decision that needs no read.
func (c *Comparer) apply(d decision, of pair, found *Comparison) {
	switch d {
	case wait:
		found.Waiting++
	case enqueue:
		c.Informers.EnqueueLowPriority(of.key)
	case raiseEpoch:
		found.Waiting++ // the informers restart, and then request another comparison
		c.Informers.RaiseEpoch(of.key.GroupResource(), of.acked.Epoch)
	case inferDelete:
		found.Deleted++
		c.metrics.inferred.WithLabelValues(of.key.GroupResource().String()).Inc()
		c.addTombstone(of, false)
	case deselect:
		found.Deselected++
		c.addTombstone(of, true)
	case leaveOnBus:
		found.OutOfScope++
	case markOutlived:
		found.Outlived++
		c.Informers.MarkOutlived(of.key, of.acked.Position)
	case restored:
		found.Restored = true
	}
}

// addTombstone records that the last known object of a key is gone or deselected. If the last
// event on the bus is foreign, the forwarder may then contradict it.
func (c *Comparer) addTombstone(of pair, deselected bool) {
	c.Informers.AddTombstone(of.key, event.Tombstone{UID: of.acked.UID, Deselected: deselected, Confirmed: true, Observed: c.Now(), Cause: event.CauseReconcile})
	if of.acked.Foreign {
		c.Informers.MarkOutlived(of.key, of.acked.Position)
	}
}
