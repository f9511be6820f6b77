package simulate

import (
	"bytes"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/resolve"
)

// The rest of this file models internal/informers for the resolver. The progress of the handler is
// the product's own internal/informers/progress.

var _ resolve.Informers = (*process)(nil)

// Watched implements [resolve.Informers].
func (p *process) Watched() []schema.GroupResource {
	return []schema.GroupResource{resource.GroupResource()}
}

// Selection implements [resolve.Informers].
func (p *process) Selection(schema.GroupResource) uint64 { return p.selection }

// reselect changes the selection of the resource.
func (p *process) reselect() { p.selection++ }

// Point implements [resolve.Informers].
func (p *process) Point(gr schema.GroupResource) (ledger.Point, bool) {
	r := &p.reflector
	if !r.synced() {
		return ledger.Point{}, false
	}
	version, at, ok := r.reached()
	if !ok || version == "" {
		return ledger.Point{}, false
	}
	return ledger.Point{
		Point: event.Point{Resource: resource, Version: version, Objects: p.selectedObjects(), AsOf: at, Taken: p.now()},
		Mark:  p.ledger.Mark(gr), Selection: p.selection,
	}, true
}

// selectedObjects returns the number of selected objects that the handler knows.
func (p *process) selectedObjects() int {
	if !p.spaces.view.Selects(namespace) {
		return 0
	}
	return p.reflector.selected
}

// reached returns the version up to which the handler has reported every change.
func (r *reflector) reached() (version string, at time.Time, ok bool) {
	r.progress.Lock()
	defer r.progress.Unlock()
	return r.progress.Reached(versionText(r.applied), r.handled == 0)
}

// Reported implements [forward.Informers].
func (p *process) Reported(event.Key) string {
	version, _, _ := p.reflector.reached()
	return version
}

// Marked implements [resolve.Informers].
func (p *process) Marked(at ledger.Point) ledger.Point {
	at.Mark = p.ledger.Mark(at.Resource.GroupResource())
	return at
}

// Reached implements [resolve.Informers].
func (p *process) Reached(at ledger.Point) bool { return p.ledger.Reached(at.Mark) }

// Clean implements [resolve.Informers].
func (p *process) Clean(_ schema.GroupResource, f func(event.Key) bool) {
	for object, o := range p.reflector.indexer {
		if k := keyOf(object); o != nil && !p.ledger.IsDirty(k) && !f(k) {
			return
		}
	}
}

// IsClean implements [resolve.Informers].
func (p *process) IsClean(k event.Key) bool { return !p.ledger.IsDirty(k) }

// resolve runs the resolver once.
func (p *process) resolve() {
	p.lookedAt = p.now()
	p.spawn(resolver, func() { p.resolver.Once(context.Background()) })
}

// mayResolve reports whether the resolver may run. After the faults, it runs only if a point is due,
// so that a history ends.
func (p *process) mayResolve() bool {
	return p.coroutine(resolver) == nil && p.now().Sub(p.lookedAt) >= resolvedInterval && (!p.world.ended || p.pointIsDue())
}

// publishPoint implements [resolve.Config].
func (p *process) publishPoint(_ context.Context, at event.Point) error {
	m, err := event.Builder{Cluster: clusterName}.Resolved(at)
	if err != nil {
		return err
	}
	h := binding.NewHeader()
	defer h.Free()
	encoded, err := binding.Encode(m, false, h)
	if err != nil {
		return err
	}
	headers, data := cloneHeader(encoded.Header), bytes.Clone(encoded.Data)
	p.world.tell("  forwarder %d sends the point of version %s", p.slot+1, at.Version)
	err = p.client.publishPoint(headers, data, func() {
		p.world.tell("  the bus stores the point of version %s", at.Version)
		p.world.points++
		p.world.oracle.resolved(p, at)
	})
	if err == nil {
		p.point = at
	}
	return err
}

// pointIsDue reports whether the current point differs from the last acknowledged point.
func (p *process) pointIsDue() bool {
	at, ok := p.Point(resource.GroupResource())
	return ok && (at.Version != p.point.Version || at.Objects != p.point.Objects)
}
