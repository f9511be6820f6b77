package informers

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestAnEpochIsOfAResource verifies that raising the epoch of one resource does not affect other
// resources, and that no epoch overflows. The storage of an aggregated API server can go back
// independently and any number of times.
func TestAnEpochIsOfAResource(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	aggregated := event.Resource{Group: "metrics.example.com", Version: "v1", Resource: "readings", Kind: "Reading"}
	other := b.newWatched(aggregated, false, func() {})
	b.Set.watched.put(aggregated.GroupResource(), other)
	for _, to := range []uint16{1, 2, event.LastEpoch, event.LastEpoch + 1, 65535, 1} {
		b.RaiseEpoch(aggregated.GroupResource(), to)
	}
	if got := b.Epoch(aggregated.GroupResource()); got != event.LastEpoch {
		t.Errorf("the epoch is %d, want %d", got, event.LastEpoch)
	}
	if !b.epochIsDue(other) || b.epochIsDue(b.watched) || b.Epoch(testKey.GroupResource()) != 0 {
		t.Errorf("due: %v and %v; want the informers of the aggregated API alone to be started anew", b.epochIsDue(other), b.epochIsDue(b.watched))
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
		t.Errorf("epoch %d, gone %v; want epoch 1 and nothing", v.Epoch, uids(v.Tombstones))
	}
}
