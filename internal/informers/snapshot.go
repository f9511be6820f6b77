package informers

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Snapshots keeps the markers of first syncs on the bus. A first sync is that of
// a resource whose snapshot the bus has never seen completed; the objects it finds
// were there before the forwarder, and the type of their first event says so.
type Snapshots interface {
	// Completed tells whether the bus has the resource's completed marker.
	Completed(context.Context, schema.GroupResource) (bool, error)
	// Started and Finished put the marker on the bus and wait for the
	// acknowledgement.
	Started(context.Context, event.Resource) error
	Finished(ctx context.Context, r event.Resource, objects int) error
}

// snapshot is the state of one resource's first sync, in one term.
type snapshot struct {
	begun  atomic.Bool   // it is known whether this is a first sync, so that keys are handed out
	ever   chan struct{} // closed when that was so for the first time
	once   sync.Once     // for ever
	done   atomic.Bool   // the bus has the completed marker, or we are about to write it
	empty  chan struct{} // has a token when the number of unacknowledged objects may have become 0
	synced atomic.Bool
}

func newSnapshot() *snapshot {
	return &snapshot{ever: make(chan struct{}), empty: make(chan struct{}, 1)}
}

// reset is for the next term.
func (n *snapshot) reset() {
	n.begun.Store(false)
	n.done.Store(false)
	n.synced.Store(false)
}

var markerBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 1 << 30, Cap: 15 * time.Second}

// beginSnapshot asks whether this is a first sync, and if so writes the started
// marker, so that it precedes the first object.
// It returns false if ctx ends first.
func (s *Set) beginSnapshot(ctx context.Context, w *watched) bool {
	return s.mark(ctx, w, func() error {
		done, err := s.config.Snapshots.Completed(ctx, w.resource.GroupResource())
		if err != nil || done {
			w.snapshot.done.Store(done)
			return err
		}
		return s.config.Snapshots.Started(ctx, w.resource)
	})
}

// finishSnapshot waits until every object of the first sync has been acknowledged
// and then writes the completed marker.
func (s *Set) finishSnapshot(ctx context.Context, w *watched) {
	if w.snapshot.done.Load() {
		return
	}
	w.snapshot.synced.Store(true)
	for s.dirty.firstSyncLeft(w.resource.GroupResource()) > 0 && !failpoint.Bug("completed-marker-early") {
		select {
		case <-ctx.Done():
			return
		case <-w.snapshot.empty:
		}
	}
	objects := s.len(w)
	if s.mark(ctx, w, func() error { return s.config.Snapshots.Finished(ctx, w.resource, objects) }) {
		w.snapshot.done.Store(true)
		s.log.Info("first snapshot completed", "resource", w.resource.GroupResource().String(), "objects", objects)
	}
}

// renewMarker writes the markers of a completed snapshot again if the bus has lost
// them. They then come after the objects.
func (s *Set) renewMarker(ctx context.Context, w *watched) error {
	if !w.snapshot.done.Load() {
		return nil
	}
	done, err := s.config.Snapshots.Completed(ctx, w.resource.GroupResource())
	if err != nil || done {
		return err
	}
	if err := s.config.Snapshots.Started(ctx, w.resource); err != nil {
		return err
	}
	return s.config.Snapshots.Finished(ctx, w.resource, s.len(w))
}

// advance is called after each key that was settled.
func (s *Set) advance(w *watched) {
	if w.snapshot.done.Load() || !w.snapshot.synced.Load() || s.dirty.firstSyncLeft(w.resource.GroupResource()) > 0 {
		return
	}
	select {
	case w.snapshot.empty <- struct{}{}:
	default:
	}
}

// mark tries until it succeeds or ctx ends.
func (s *Set) mark(ctx context.Context, w *watched, write func() error) bool {
	backoff, level := markerBackoff, slog.LevelWarn
	for {
		err := write()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.log.Log(ctx, level, "snapshot marker cannot be read or written; will be tried again", "resource", w.resource.GroupResource().String(), "err", err)
		level = slog.LevelDebug // there may be hundreds of resources
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}
