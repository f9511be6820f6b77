// Package resolve publishes the consistency points of a term. A consistency point names a resource
// and a version up to which the bus has every change of the resource.
package resolve

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// Config configures a [Resolver]. All fields are required.
type Config struct {
	Informers  Informers
	Checkpoint Checkpoint

	// Losses returns the number of events that the bus is known to have lost. known is false while
	// the bus might have lost more events.
	Losses func() (lost uint64, known bool)

	// Publish publishes a point and waits for its acknowledgement.
	Publish func(context.Context, event.Point) error

	// Compare requests a comparison of a resource, which must run in [Resolver.Comparing].
	Compare func(schema.GroupResource)

	Interval time.Duration // minimum time between two points of a resource
	Now      func() time.Time
	Logger   *slog.Logger
}

// Checkpoint provides the last known event on the bus for each object.
type Checkpoint interface {
	Entries(schema.GroupResource) iter.Seq2[event.Key, event.Acked]
}

// Resolver publishes points. Make one with [New].
//
// The informers know which changes from their watches the bus lacks. The resolver compares the
// events of earlier terms with the informers before the first point, and again after each loss of
// events and each change of the selection.
type Resolver struct {
	Config
	published *prometheus.CounterVec

	mu        sync.Mutex
	resources map[schema.GroupResource]*resolution
}

// Informers contains the methods of the informers that a Resolver calls.
type Informers interface {
	Watched() []schema.GroupResource
	Selection(schema.GroupResource) uint64
	Point(schema.GroupResource) (ledger.Point, bool)
	Marked(ledger.Point) ledger.Point
	Reached(ledger.Point) bool
	Clean(schema.GroupResource, func(event.Key) bool)
	IsClean(event.Key) bool
	Lookup(event.Key) event.View
	Reported(event.Key) string
}

// resolution is the state of a resource. The lock guards compared, due, and last. Only Once uses
// the other fields.
type resolution struct {
	tried    time.Time     // when Once last tried to take a point, or published one
	asked    time.Time     // when a comparison was last requested
	pending  *ledger.Point // the point that the bus has not reached yet, nil for none
	awaited  awaited       // what the handler must report before the pending point counts; nil for nothing
	agreed   uint64        // the selection for which the bus last agreed with the cluster
	lost     uint64        // the result of Losses when the bus last agreed with the cluster
	compared uint64        // the selection of the last comparison that decided about every object
	due      time.Time     // when the first point became possible; the zero time until then
	last     event.Point   // the last published point, the zero value for none
}

var _ prometheus.Collector = (*Resolver)(nil)

// New returns a Resolver that does nothing until Run.
func New(c Config) *Resolver {
	return &Resolver{
		Config: c, resources: map[schema.GroupResource]*resolution{},
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_resolved_total", Help: "Consistency points published, by resource.",
		}, []string{"resource"}),
	}
}

// Run publishes consistency points until ctx ends.
func (r *Resolver) Run(ctx context.Context) {
	every := min(max(r.Interval/10, 10*time.Millisecond), time.Second)
	_ = wait.PollUntilContextCancel(ctx, every, false, func(ctx context.Context) (bool, error) {
		r.Once(ctx)
		return false, nil
	})
}

// Once takes the points that are due, and publishes the points that the bus has reached. Only one
// call may run at a time.
func (r *Resolver) Once(ctx context.Context) {
	for _, gr := range r.Informers.Watched() {
		r.step(ctx, gr, r.of(gr))
	}
	r.forget()
}

// of returns the resolution of a resource. It creates the resolution if necessary.
func (r *Resolver) of(gr schema.GroupResource) *resolution {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resources[gr] == nil {
		r.resources[gr] = &resolution{}
	}
	return r.resources[gr]
}

// Comparing calls compare, which compares a resource and reports whether it decided about every object.
// If it did, Comparing records the selection from before the comparison, because the selection might
// have changed during the comparison.
func (r *Resolver) Comparing(gr schema.GroupResource, compare func() (decided bool)) {
	if selection := r.Informers.Selection(gr); compare() {
		r.compared(gr, selection)
	}
}

// compared records that a comparison for a selection decided about every object.
func (r *Resolver) compared(gr schema.GroupResource, selection uint64) {
	of := r.of(gr)
	r.mu.Lock()
	defer r.mu.Unlock()
	of.compared = selection
}

// isCompared reports whether a comparison has decided about every object since the selection changed.
func (r *Resolver) isCompared(gr schema.GroupResource) bool {
	of := r.of(gr)
	r.mu.Lock()
	defer r.mu.Unlock()
	return of.compared == r.Informers.Selection(gr)
}

// step takes the next point of a resource when one is due, and publishes it when the bus has
// reached it.
func (r *Resolver) step(ctx context.Context, gr schema.GroupResource, of *resolution) {
	if of.pending == nil && !r.take(gr, of) {
		return
	}
	if r.Informers.Selection(gr) != of.pending.Selection {
		of.pending = nil // an informer might have ended, so the missing changes are unknown
		return
	}
	if !r.isReported(of) || !r.Informers.Reached(*of.pending) {
		return
	}
	p := *of.pending
	of.pending = nil
	if lost, known := r.Losses(); !known || lost != of.lost {
		return // the bus might have lost events since the point was taken
	}
	if err := r.Publish(ctx, p.Point); err != nil { // the point might be on the bus; the next point has another ID
		r.Logger.Debug("consistency point failed, taking another", "resource", gr.String(), "err", err)
		return
	}
	of.tried = r.Now()
	r.published.WithLabelValues(gr.String()).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	of.last = p.Point
}

// take takes the next point of a resource if one is due and differs from the last point.
func (r *Resolver) take(gr schema.GroupResource, of *resolution) bool {
	if r.Now().Sub(of.tried) < r.Interval {
		return false
	}
	lost, _ := r.Losses()
	p, ok := r.Informers.Point(gr)
	if ok {
		r.setDue(of)
	}
	if !ok || of.last.Version == p.Version && of.last.Objects == p.Objects && of.lost == lost {
		return false
	}
	of.tried = r.Now()
	of.awaited = nil
	if of.agreed != p.Selection || of.lost != lost {
		if of.awaited = r.agrees(gr); of.awaited == nil {
			r.requestComparison(gr, of)
			return false
		}
	}
	of.agreed, of.lost, of.pending = p.Selection, lost, &p
	return true
}

// setDue records when the first point of a resource became possible.
func (r *Resolver) setDue(of *resolution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.due.IsZero() {
		of.due = r.Now()
	}
}

// requestInterval is the minimum time between two requests for a comparison of a resource.
const requestInterval = 10 * time.Second

// requestComparison requests a comparison of a resource if a point needs one.
func (r *Resolver) requestComparison(gr schema.GroupResource, of *resolution) {
	if now := r.Now(); !r.isCompared(gr) && now.Sub(of.asked) >= requestInterval {
		of.asked = now
		r.Compare(gr)
	}
}

// forget drops the resources that are no longer watched.
func (r *Resolver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.resources, func(gr schema.GroupResource, _ *resolution) bool { return r.Informers.Selection(gr) == 0 })
}

// ConsistentAsOf returns the time of the latest cluster state that the bus has in full, or the zero
// time if unknown. This time is later than the time of the last point if the watch has since shown
// that nothing has changed.
func (r *Resolver) ConsistentAsOf(gr schema.GroupResource) time.Time {
	r.mu.Lock()
	of := r.resources[gr]
	if of == nil || of.last.AsOf.IsZero() {
		r.mu.Unlock()
		return time.Time{}
	}
	last := of.last
	r.mu.Unlock()
	if p, ok := r.Informers.Point(gr); ok && p.Version == last.Version && p.Objects == last.Objects {
		return p.AsOf
	}
	return last.AsOf
}

// MissingSince returns the time when the first consistency point of a resource became possible, if
// no point has been published since. It returns the zero time if the resource has a point, or if
// its first sync is not complete.
func (r *Resolver) MissingSince(gr schema.GroupResource) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.resources[gr]; of != nil && of.last.AsOf.IsZero() {
		return of.due
	}
	return time.Time{}
}
