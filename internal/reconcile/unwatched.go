package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// compareUnwatched compares a resource that no informer watches. If the cluster no longer serves
// the resource, its objects are gone. If the cluster serves the resource, but the resource is not
// selected, its objects are deselected.
func (c *Comparer) compareUnwatched(ctx context.Context, gr schema.GroupResource, catalog *discovery.Catalog, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	var found Comparison
	var live []pair
	for k, a := range acked {
		if a.Live() {
			live = append(live, pair{key: k, acked: a})
		}
	}
	if len(live) == 0 {
		c.metrics.forget(gr.String())
		if !c.Informers.DescribeResource(gr).HasReferences {
			return found, nil
		}
	}
	removed, err := discovery.IsRemoved(ctx, gr, catalog, c.Discovery, c.Reads)
	switch {
	case errors.Is(err, discovery.ErrUnprovable):
		found.OutOfScope = len(live)
		if len(live) > 0 {
			c.Logger.Warn("resource not served, leaving its objects on the bus", "resource", gr.String(), "objects", len(live), "err", err)
		}
		return found, nil
	case err != nil:
		return found, fmt.Errorf("find out whether the cluster still serves %s: %w", gr, err)
	}
	r := c.Informers.DescribeResource(gr)
	if removed && !r.Watched {
		c.Informers.ForgetReferences(gr)
	}
	decision := decideUnwatched(gr, r, removed, c.PublishDeselected)
	for _, of := range live {
		if c.Informers.DescribeResource(gr).Watched {
			decision = wait // the resource is watched again, and its informers request another comparison
		}
		c.apply(decision, of, &found)
	}
	return found, nil
}

// decideUnwatched decides about the objects of a resource that no informer watches. While the
// discovery of any group fails, the resource might still be selected.
func decideUnwatched(gr schema.GroupResource, r ResourceView, removed, publishDeselected bool) decision {
	switch {
	case removed:
		return inferDelete
	case r.Catalog.IsMissing(gr):
		return wait // the API server serves the resource again, but the catalog does not show that yet
	case r.Selected:
		return wait // its informers request another comparison when they have synced
	case !r.ReferencesKnown:
		return wait // an object that is not listed yet might refer to this resource
	case !publishDeselected, len(r.Catalog.Failed) > 0:
		return leaveOnBus
	}
	return deselect
}
