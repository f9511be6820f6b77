package simulate

import (
	"context"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
)

// compared is the cluster that the reconciler compares with the bus. It sorts the entries, because
// the checkpoint returns them in random order and a seed must replay exactly.
type compared struct{ *process }

var _ checkpoint.Cluster = compared{}

func sorted(acked iter.Seq2[event.Key, event.Acked]) iter.Seq2[event.Key, event.Acked] {
	entries := maps.Collect(acked)
	return func(yield func(event.Key, event.Acked) bool) {
		for _, k := range slices.SortedFunc(maps.Keys(entries), event.Key.Compare) {
			if !yield(k, entries[k]) {
				return
			}
		}
	}
}

func (c compared) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error {
	var err error
	c.resolver.Comparing(gr, func() bool {
		var found reconcile.Comparison
		found, err = c.comparer.Reconcile(ctx, gr, sorted(acked))
		return err == nil && found.Decided()
	})
	return err
}

func (c compared) Confirm(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error {
	_, err := c.comparer.Confirm(ctx, gr, sorted(acked))
	return err
}

func (c compared) EnqueueAll() {
	c.raiseEpochs()
	c.reselect()
	for _, k := range c.ledger.Dirty() {
		c.enqueue(k)
	}
	c.enqueueShown()
	c.compareResource()
}
