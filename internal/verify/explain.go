package verify

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// explain adds the fields that differ to problems of kind Different, if both states can still be
// read.
func (v *verification) explain(ctx context.Context) error {
	for i, n := 0, 0; i < len(v.report.Problems) && n < explained; i++ {
		p := &v.report.Problems[i]
		if p.Kind != report.Different {
			continue
		}
		n++
		if where := v.whereDifferent(ctx, p); where != "" {
			p.Detail += ": " + where
		}
	}
	return ctx.Err()
}

// whereDifferent describes how the event differs from the object: the fields that differ, or why the data
// cannot be compared. It returns "" if it cannot read both sides. The caller reports the problem in any case.
func (v *verification) whereDifferent(ctx context.Context, p *report.Problem) string {
	k := keyOf(*p)
	r, filtered, ok := v.resourceOf(k.GroupResource())
	if !ok {
		return ""
	}
	r, _ = v.selection.as(r, v.follower.State(k))
	as := view{selected: filtered}
	if p.Point != "" {
		as.at = p.Cluster
	}
	s, err := v.cluster.lookOne(ctx, r, k, as)
	if err != nil || s.version != p.Cluster {
		return ""
	}
	e, found, err := v.follower.EventAt(ctx, k, p.Position)
	if err != nil || !found {
		return ""
	}
	if e.Get("truncated") == "true" || e.Get("finalstateunknown") == "true" {
		return "the event holds metadata only"
	}
	t, err := e.ObjectOf()
	if err != nil {
		return err.Error()
	}
	v.cluster.form.OfBus(k.GroupResource().String(), t)
	return normal.Differences(s.tree, t)
}

// keyOf returns the object that a problem is about.
func keyOf(p report.Problem) event.Key {
	gr := schema.ParseGroupResource(p.Resource)
	return event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: p.Namespace, Name: p.Name}
}
