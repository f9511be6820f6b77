package informers

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// TestAnEpochIsOfAResource verifies that raising the epoch of one resource does not affect other
// resources, and that no epoch overflows. The storage of an aggregated API server can go back
// independently and any number of times.
func TestAnEpochIsOfAResource(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	aggregated := event.Resource{Group: "metrics.example.com", Version: "v1", Resource: "readings", Kind: "Reading"}
	other := b.newWatched(aggregated, false, func() {})
	b.Set.watched.Put(aggregated.GroupResource(), other)
	for _, to := range []uint16{1, 2, event.LastEpoch, event.LastEpoch + 1, 65535, 1} {
		b.RaiseEpoch(aggregated.GroupResource(), to)
	}
	if got := b.Epoch(aggregated.GroupResource()); got != event.LastEpoch {
		t.Errorf("the epoch is %d, want %d", got, event.LastEpoch)
	}
	if !b.epochIsDue(other) || b.epochIsDue(b.watched) || b.Epoch(testKey.GroupResource()) != 0 {
		t.Errorf("a restart is due: %v and %v; want a restart of only the informers of the aggregated API", b.epochIsDue(other), b.epochIsDue(b.watched))
	}
	b.RaiseEpochs(3) // as after the cluster replaces another one of the same name
	if got := b.Epoch(testKey.GroupResource()); got != 3 || !b.epochIsDue(b.watched) {
		t.Errorf("the epoch is %d, want 3", got)
	}
	if got := b.Epoch(schema.GroupResource{Resource: "unknown"}); got != 3 {
		t.Errorf("the epoch of a resource that appears later is %d, want 3", got)
	}
}

// TestAnEpochForgetsWhatWasGone verifies that a new epoch forgets the tombstones of the previous
// history. An earlier version applied such a tombstone before the first list, to an object that
// existed in the new epoch.
func TestAnEpochForgetsWhatWasGone(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	b.delete(object("A", "2"))
	b.RaiseEpoch(testKey.GroupResource(), 1)
	close(b.watched.stopped) // the bench never runs it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.startDueEpochs(ctx)
	<-b.watchedFor(testKey.GroupResource()).stopped
	if v := b.Lookup(testKey); v.Epoch != 1 || len(v.Tombstones) > 0 {
		t.Errorf("epoch %d, tombstones %v; want epoch 1 and no tombstone", v.Epoch, uids(v.Tombstones))
	}
}

// TestNoDeselectionDuringARestart verifies that a resource that restarts in another epoch or version
// does not count as deselected meanwhile. With KUBERELAY_ON_DESELECT=publish, an earlier version
// deselected the objects that a comparison found while apply or startDueEpochs waited for the informers.
func TestNoDeselectionDuringARestart(t *testing.T) {
	widgets := event.Resource{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
	older := widgets
	older.Version = "v1alpha1"
	answer := func(watch ...event.Resource) *survey.Answer {
		return &survey.Answer{Catalog: mustDiscover(t, discoverytest.Cluster()), Resolution: discovery.Resolution{Watch: watch}}
	}
	for name, restart := range map[string]func(context.Context, *bench){
		"epoch": func(ctx context.Context, b *bench) {
			b.RaiseEpoch(widgets.GroupResource(), 1)
			b.startDueEpochs(ctx)
		},
		"version": func(ctx context.Context, b *bench) { b.apply(ctx, answer(widgets)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{PublishDeselected: true}, older)
			b.answer = answer(older)
			k, compared := widgets.Key("default", "web"), false
			b.watched.cancel = func() {
				compared = true
				found, err := b.Confirm(t.Context(), widgets.GroupResource(), acked(map[event.Key]event.Acked{k: live("A", "5")}))
				if v := b.Lookup(k); err != nil || found != (reconcile.Comparison{Waiting: 1}) || len(v.Tombstones) > 0 {
					t.Errorf("found %+v, error %v, tombstones %+v; want one object that waits, and no tombstone", found, err, v.Tombstones)
				}
				close(b.watched.stopped)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			restart(ctx, b)
			<-b.watchedFor(widgets.GroupResource()).stopped
			if !compared {
				t.Error("not restarted")
			}
		})
	}
}

// TestAReferencedResourceIsSelected verifies that a resource counts as selected while its informers
// restart if only references select it.
func TestAReferencedResourceIsSelected(t *testing.T) {
	parts := event.Resource{Group: "example.com", Version: "v1", Resource: "parts", Kind: "Part", Namespaced: true}
	kind := schema.GroupKind{Group: parts.Group, Kind: parts.Kind}
	b := newBench(t, Config{Follow: []string{"spec.ref"}}, testResource)
	b.answer = &survey.Answer{Catalog: &discovery.Catalog{}}
	b.references.Learn(map[schema.GroupKind]event.Resource{kind: parts}, nil)
	if b.DescribeResource(parts.GroupResource()).Selected {
		t.Error("selected before anything refers to it")
	}
	o := object("A", "1")
	o.References = []event.Reference{{Group: kind.Group, Kind: kind.Kind, Name: "one"}}
	b.list(o)
	if is := b.DescribeResource(parts.GroupResource()); !is.Selected || is.Watched {
		t.Errorf("selected: %t, watched: %t", is.Selected, is.Watched)
	}
}
