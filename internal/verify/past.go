package verify

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
)

// inquiry identifies a list of the cluster at one version of the past.
type inquiry struct {
	resource resource
	filtered bool // label and field selectors apply
	at       string
}

// whyNoPoint returns the reason why the differences of a resource can't be judged at a consistency
// point, or "" if they can. listed is the version of a list that was taken after the point was
// read.
func (v *verification) whyNoPoint(ctx context.Context, r resource, p replica.Point, listed string) string {
	switch {
	case v.isIndirect(r.GroupResource()):
		return "other objects decide which of its objects are selected"
	case p.Version == "":
		return "the bus has no consistency point of it"
	case replica.Newer(p.Version, listed):
		return fmt.Sprintf("the consistency point at %s is ahead of the cluster", p.Version)
	}
	_, filtered, _ := v.resourceOf(r.GroupResource())
	switch err := v.cluster.remembers(ctx, r, view{filtered, p.Version}); {
	case err == nil:
		return ""
	case isExpired(err):
		return fmt.Sprintf("the API server no longer has the consistency point at %s", p.Version)
	default:
		return fmt.Sprintf("the API server can't list the version %s of the consistency point: %v", p.Version, err)
	}
}

// isIndirect reports whether the selection of an object can change without a change of the object:
// by the labels of its namespace, or by a reference to it.
func (v *verification) isIndirect(gr schema.GroupResource) bool {
	r, _, _ := v.resourceOf(gr)
	_, whole := v.selection.selected[gr]
	return !whole || r.Namespaced && v.cluster.coverage.selector != nil
}

// remembers returns an error unless the API server can list a resource at a version of the past.
func (c *cluster) remembers(ctx context.Context, r resource, as view) error {
	namespaces := c.lists(r)
	for n := 0; n < len(namespaces); n++ {
		s := c.scope(namespaces[n], "", as)
		s.first = true
		_, err := c.list(ctx, r, s, func(item) error { return nil })
		if namespaces[n] == "" && err != nil {
			if one, ok := c.whereAllowed(ctx, r, err); ok {
				namespaces, n = one, -1
				continue
			}
		}
		if namespaces[n] == "" || !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}

// pointOf returns the consistency point at which verify judges an object, or the zero value if it
// can't judge the object at a point. latest is the latest point on the bus. At a point, verify
// reports a difference at once, without the settle time.
func (v *verification) pointOf(k event.Key, latest replica.Point) replica.Point {
	if !v.atPoints[k.GroupResource()] || !v.covers(k) {
		return replica.Point{}
	}
	return latest
}

// lookBack reads the past of the objects that differ, at the version at which bus and cluster must
// agree. If the API server no longer has that version, the past stays unknown.
func (v *verification) lookBack(ctx context.Context, observations map[event.Key]*observation) error {
	due := map[inquiry][]event.Key{}
	for k, o := range observations {
		q, ok := v.inquiryOf(k, o)
		switch c := v.candidates[k]; {
		case !ok:
		case c.asked == q:
			o.past = c.past // the past doesn't change
		default:
			due[q] = append(due[q], k)
			c.asked, c.past = q, nil
		}
	}
	var mu sync.Mutex
	answer := func(ctx context.Context, q inquiry, keys []event.Key) {
		found, err := v.past(ctx, q, keys)
		if err != nil {
			v.log.Debug("list of the past failed", "resource", q.resource.GroupResource().String(), "resource_version", q.at, "err", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for k, s := range found {
			observations[k].past, v.candidates[k].past = &s, &s
		}
	}
	few := errgroup.Group{}
	few.SetLimit(maxConcurrent)
	for q, keys := range due {
		if len(keys) > maxSingleReads {
			answer(ctx, q, keys) // one list
			continue
		}
		few.Go(func() error { answer(ctx, q, keys); return nil })
	}
	_ = few.Wait() // no error
	return ctx.Err()
}

// inquiryOf returns the inquiry about an object that differs now. Bus and cluster must agree at the
// version of the consistency point, or at the version of the event if that is later. Without a
// point, the inquiry only checks whether the last event was right. Such an inquiry needs a bus that
// has reached the candidate's reference state. ok is false if an inquiry can't help.
func (v *verification) inquiryOf(k event.Key, o *observation) (q inquiry, ok bool) {
	r, filtered, ok := v.resourceOf(k.GroupResource())
	c := v.candidates[k]
	point := o.point.Version
	switch {
	case !ok, o.agrees():
		return q, false
	case point == "" && (!o.bus.Live() || c.compared || c.reference == nil || !c.hasReached(*o)):
		return q, false
	}
	r, _ = v.selection.as(r, o.bus)
	q = inquiry{r, filtered, point}
	if o.bus.Live() && (point == "" || replica.Newer(o.bus.Version, point)) {
		q.at = o.bus.Version
	}
	return q, q.at == o.cluster.asOf || replica.Newer(o.cluster.asOf, q.at) // the API server waits for a future version
}

// past reads some objects at a version of the past. It omits objects that existed at that version
// and did not match the label and field selectors. The bus might keep such objects, if they stopped
// matching while no forwarder ran.
func (v *verification) past(ctx context.Context, q inquiry, keys []event.Key) (map[event.Key]sighting, error) {
	found, err := v.cluster.look(ctx, q.resource, keys, view{q.filtered, q.at})
	if err != nil || !q.filtered || !v.cluster.selects() || v.opts.TellDeselected {
		return found, err
	}
	var absent []event.Key
	for k, s := range found {
		if !s.present && !s.left {
			absent = append(absent, k)
		}
	}
	whole, err := v.cluster.look(ctx, q.resource, absent, view{at: q.at})
	for k, s := range whole {
		if s.present || s.left {
			delete(found, k)
		}
	}
	return found, err
}
