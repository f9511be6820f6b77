// Package reconcile compares the events of a resource on the bus with the cluster. It finds changes
// that happened while no informer watched the resource: deleted objects, objects that left the
// selection, and restores of etcd.
//
// The package infers a delete only if a consistent read confirms it: a read of the object, of its
// namespace, or of its resource's CustomResourceDefinition or APIService. The cache of an informer
// or of an API server does not suffice, because it might be behind the bus. A failed read proves
// nothing.
//
// The package publishes nothing. It reports its findings to the informers, which enqueue the keys.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Informers contains the methods of the informers that a comparison calls. Only RenewMarkers may
// block.
type Informers interface {
	DescribeResource(schema.GroupResource) ResourceView
	DescribeObject(event.Key) ObjectView
	// SelectsNamespace reports whether a namespace with these labels is selected.
	SelectsNamespace(namespace string, labels map[string]string) bool
	Marks

	// RenewMarkers makes the informers write the snapshot markers of a resource again if the bus has
	// lost them.
	RenewMarkers(context.Context, schema.GroupResource) error
}

// Marks receives the conclusions of a comparison.
type Marks interface {
	// AddTombstone records that a UID is gone or deselected, and enqueues the key.
	AddTombstone(event.Key, event.Tombstone)

	// MarkOutlived records that a consistent read confirmed the informer's state, although the
	// bus has a delete or a foreign event. It enqueues the key.
	MarkOutlived(event.Key, event.Outlived)

	// ForgetOthers forgets that other objects with the name are gone, because the object in the last
	// event stays on the bus.
	ForgetOthers(event.Key)

	EnqueueLowPriority(event.Key)

	// RaiseEpoch makes the informers of a resource restart in a later epoch.
	RaiseEpoch(gr schema.GroupResource, to uint16)

	// ForgetReferences forgets the references of a resource's objects. It is called when the
	// cluster no longer serves the resource.
	ForgetReferences(schema.GroupResource)
}

// Config configures a [Comparer]. All fields are required unless noted.
type Config struct {
	Informers Informers
	Discovery discovery.DiscoveryInterface
	Reads     dynamic.Interface // for consistent reads

	// Each calls read with 0 to n-1, and returns the first error. It is optional. The default runs
	// up to 16 calls at a time and starts no call after an error.
	Each func(ctx context.Context, n int, read func(context.Context, int) error) error

	// PublishDeselected enables deselected events for objects on the bus that an earlier
	// configuration selected and the current one does not. If false, these objects stay on the
	// bus.
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

// Comparison counts the findings of one comparison, in objects.
type Comparison struct {
	Deleted    int  // deleted while nothing watched them; a delete is due
	Deselected int  // no longer selected; a deselected event is due
	OutOfScope int  // no longer selected; they stay on the bus
	Waiting    int  // undecided until the informers sync or catch up with the bus
	Outlived   int  // a read confirmed the informer although the bus has a delete or a foreign event
	Restored   bool // the resource's history was rolled back
}

// Decided reports whether the comparison decided about every object.
func (c Comparison) Decided() bool { return c.Waiting == 0 && !c.Restored }

// Reconcile compares the events of one resource on the bus with the cluster, and enqueues every key
// that differs. It renews the snapshot markers that the bus has lost.
//
// Reconcile concludes nothing from an informer that has not synced. It also concludes nothing about
// a resource while it is uncertain whether the cluster serves that resource. If Reconcile returns an
// error, it has recorded all findings that it could confirm. Call it again for the rest.
//
// If a consistent read returns an object at an older resourceVersion than the bus has, the
// resource's history was rolled back: etcd was restored from a backup, or an aggregated API server
// lost its storage. Reconcile then begins a new epoch for the resource.
func (c *Comparer) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	c.answers.prune(c.Now())
	if err := c.Informers.RenewMarkers(ctx, gr); err != nil {
		return Comparison{}, fmt.Errorf("renew the snapshot markers of %s: %w", gr, err)
	}
	found, err := c.Confirm(ctx, gr, acked)
	c.metrics.setOutOfScope(gr.String(), found.OutOfScope, c.Informers.DescribeResource(gr).Watched)
	return found, err
}

// Confirm is like Reconcile, but for a few keys of a resource. If the bus and an informer
// contradict each other about an object, Confirm reads the object once and remembers the answer.
// While neither side changes, Confirm reads the object again only after a pause that doubles each
// time.
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
			p.compare(pair{key: k, acked: a})
		}
	}
	// An object or a namespace that can't be read doesn't delay the others.
	err := errors.Join(p.readNamespaces(ctx), p.readObjects(ctx), p.listLeaving(ctx))
	if p.found.Restored {
		c.Informers.RaiseEpoch(gr, event.NextEpoch(r.Epoch))
	}
	return p.found, err
}

// pair is a key and its last known event on the bus.
type pair struct {
	key        event.Key
	acked      event.Acked
	absentAt   string // the version at which a consistent read found no object; "" for none
	unselected bool   // the object might exist, but is not selected
}

func (p pair) outlived(now time.Time) event.Outlived {
	return event.Outlived{Position: p.acked.Position, AbsentAt: p.absentAt, Unselected: p.unselected, At: now}
}

// pass is one comparison of a watched resource: its findings, and the keys that need a read.
type pass struct {
	*Comparer
	resource event.Resource
	epoch    uint16
	found    Comparison

	objects    []pair            // objects to read
	namespaces map[string][]pair // namespaces to read, with their objects
	read       sync.Map          // by namespace: the [namespaceRead]
	leaving    map[string][]pair // by namespace: objects that are deselected or gone; a list shows which
}

func (p *pass) compare(of pair) {
	v := p.Informers.DescribeObject(of.key)
	decision := decide(p.resource, p.epoch, of, v)
	if decision == readObject && v.Live != nil && p.answers.isAnswered(of.key, questionOf(v.Live, of.acked, p.epoch), p.Now()) {
		decision = wait
	}
	of.unselected = !v.Selected
	p.file(decision, of)
}

// file applies a decision, or records what must be read first.
func (p *pass) file(d decision, of pair) {
	switch d {
	case readObject:
		p.objects = append(p.objects, of)
	case readNamespace:
		p.namespaces[of.key.Namespace] = append(p.namespaces[of.key.Namespace], of)
	case listNamespace:
		p.leaving[of.key.Namespace] = append(p.leaving[of.key.Namespace], of)
	default:
		p.apply(d, of, &p.found)
	}
}

// errBehind makes the caller compare again later. If the forwarder published the delete now, the
// watch would later report the creation and deletion of the same object, and the forwarder would
// publish both again.
var errBehind = errors.New("the watch is behind the bus")

// apply records a final decision, which needs no further read.
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
		c.Informers.ForgetOthers(of.key)
	case markOutlived:
		found.Outlived++
		c.Informers.MarkOutlived(of.key, of.outlived(c.Now()))
	case restored:
		found.Restored = true
	}
}

// addTombstone records that the last known object of a key is gone or deselected. If the last event
// on the bus is foreign, addTombstone also allows the forwarder to repair it.
func (c *Comparer) addTombstone(of pair, deselected bool) {
	c.Informers.AddTombstone(of.key, event.Tombstone{
		UID: of.acked.UID, Deselected: deselected, Confirmed: true, Contradicts: of.acked.Position, Observed: c.Now(), Cause: event.CauseReconcile,
	})
	if of.unselected = deselected; of.acked.Foreign {
		c.Informers.MarkOutlived(of.key, of.outlived(c.Now()))
	}
}
