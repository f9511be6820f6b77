// Package firstsync marks the first sync of a resource on the bus: a started marker before the first
// object, and a completed marker after the last. A new subscriber knows from the markers when it has
// every object.
//
// The completed marker is written only when the bus has acknowledged every object that the first list
// showed. If the bus loses the markers and objects with them, the package writes the markers again
// after the bus has the lost objects. The package does not list or publish objects.
package firstsync

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Markers stores the markers of first syncs on the bus. Every sync of a resource counts as its first
// sync until the bus has the completed marker. The first event of each object in a first sync has
// the type snapshot, which means that the object existed before the forwarder.
type Markers interface {
	// Completed reports whether the bus has the completed marker of a resource.
	Completed(context.Context, schema.GroupResource) (bool, error)
	// Started and Finished publish a marker and wait for its acknowledgement.
	Started(context.Context, event.Resource) error
	Finished(ctx context.Context, r event.Resource, objects int) error
}

// Config configures a [Sync]. All fields are required.
type Config struct {
	Resource event.Resource
	Markers  Markers

	Len       func() int                 // the number of selected objects
	Left      func() int                 // the number of objects of the first sync that the bus has not acknowledged
	Keys      func() iter.Seq[event.Key] // the objects that the informers show
	IsMissing func(event.Key) bool       // whether the bus lacks an object that is selected and can be published
	Logger    *slog.Logger
}

// Sync tracks the first sync of a resource, one term at a time. Make one with [New], and call
// [Sync.Reset] between terms.
type Sync struct {
	Config
	done   atomic.Bool   // the bus has the completed marker
	synced atomic.Bool   // all objects of the first sync are enqueued
	empty  chan struct{} // has a token when the number of unacknowledged objects might have become 0
	lost   chan struct{} // has a token when the bus might have lost the completed marker
}

// New returns the Sync of a resource before its first term.
func New(c Config) *Sync {
	return &Sync{Config: c, empty: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
}

// Reset prepares the Sync for the next term.
func (s *Sync) Reset() {
	s.done.Store(false)
	s.synced.Store(false)
}

// IsDone reports whether the bus has the completed marker.
func (s *Sync) IsDone() bool { return s.done.Load() }

// IsListing reports whether an object that is listed now belongs to the first sync.
func (s *Sync) IsListing() bool { return !s.done.Load() && !s.synced.Load() }

var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 1 << 30, Cap: 15 * time.Second}

// Begin determines whether this is a first sync. If it is, Begin writes the started marker. Call it
// before the first object is published. It returns false if ctx ends first.
func (s *Sync) Begin(ctx context.Context) bool {
	return s.retry(ctx, func() error {
		done, err := s.writeStarted(ctx)
		s.done.Store(err == nil && done)
		return err
	})
}

// writeStarted writes the started marker, unless the bus has the completed marker. It reports
// whether the bus has the completed marker.
func (s *Sync) writeStarted(ctx context.Context) (done bool, err error) {
	done, err = s.Markers.Completed(ctx, s.Resource.GroupResource())
	if err != nil || done {
		return done, err
	}
	return false, s.Markers.Started(ctx, s.Resource)
}

// Finish waits until the bus has acknowledged every object of the first sync, and then
// writes the completed marker. Call it when all objects of the first sync are enqueued.
func (s *Sync) Finish(ctx context.Context) {
	if s.done.Load() {
		return
	}
	s.synced.Store(true)
	for s.Left() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-s.empty:
		}
	}
	objects := s.Len()
	if s.retry(ctx, func() error { return s.Markers.Finished(ctx, s.Resource, objects) }) {
		s.done.Store(true)
		s.Logger.Info("first snapshot completed", "resource", s.Resource.GroupResource().String(), "objects", objects)
	}
}

// Renew requests new markers for a completed first sync if the bus has lost them. It returns before
// they are written: the lost objects must be published before their markers.
func (s *Sync) Renew(ctx context.Context) error {
	if !s.done.Load() {
		return nil
	}
	done, err := s.Markers.Completed(ctx, s.Resource.GroupResource())
	if err == nil && !done {
		select {
		case s.lost <- struct{}{}:
		default:
		}
	}
	return err
}

// Keep renews the markers each time the bus might have lost them, until ctx ends.
func (s *Sync) Keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lost:
			s.renew(ctx)
		}
	}
}

// renew first waits until the bus has the objects that it lacks when renew is called.
// It then writes the markers again if the bus has lost them.
func (s *Sync) renew(ctx context.Context) {
	var missing []event.Key
	for k := range s.Keys() {
		if s.IsMissing(k) {
			missing = append(missing, k)
		}
	}
	arrived := func(context.Context) (bool, error) {
		missing = slices.DeleteFunc(missing, func(k event.Key) bool { return !s.IsMissing(k) })
		return len(missing) == 0, nil
	}
	if err := backoff.DelayFunc().Until(ctx, true, true, arrived); err != nil {
		return // the term ends
	}
	s.retry(ctx, func() error {
		done, err := s.writeStarted(ctx)
		if err != nil || done {
			return err
		}
		return s.Markers.Finished(ctx, s.Resource, s.Len())
	})
}

// Advance lets Finish continue if the first sync no longer waits for any key. Call it after each
// settled key.
func (s *Sync) Advance() {
	if s.done.Load() || !s.synced.Load() || s.Left() > 0 {
		return
	}
	select {
	case s.empty <- struct{}{}:
	default:
	}
}

// retry calls f, which reads or writes a marker, until f succeeds or ctx ends.
func (s *Sync) retry(ctx context.Context, f func() error) bool {
	level := slog.LevelWarn
	return nil == backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := f()
		if err != nil && ctx.Err() == nil {
			s.Logger.Log(ctx, level, "snapshot marker failed, retrying", "resource", s.Resource.GroupResource().String(), "err", err)
			level = slog.LevelDebug // there might be hundreds of resources
		}
		return err == nil, nil
	})
}
