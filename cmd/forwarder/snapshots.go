package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// snapshots puts the markers of first syncs on a bus.
type snapshots struct {
	bus     *bus
	builder event.Builder

	mu       sync.Mutex
	sessions map[schema.GroupResource]string // of snapshots that have begun
	finished map[schema.GroupResource]bool
}

var _ informers.Snapshots = (*snapshots)(nil)

func newSnapshots(b *bus, builder event.Builder) *snapshots {
	return &snapshots{bus: b, builder: builder, sessions: map[schema.GroupResource]string{}, finished: map[schema.GroupResource]bool{}}
}

func (s *snapshots) Completed(ctx context.Context, gr schema.GroupResource) (bool, error) {
	if s.bus.source == nil { // it cannot be asked
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.finished[gr], nil
	}
	last, _, err := s.bus.marked(ctx, gr)
	return last == event.SnapshotCompleted, err
}

func (s *snapshots) Started(ctx context.Context, r event.Resource) error {
	return s.put(ctx, event.SnapshotStarted, r, s.session(r.GroupResource()), 0)
}

func (s *snapshots) Finished(ctx context.Context, r event.Resource, objects int) error {
	gr := r.GroupResource()
	err := s.put(ctx, event.SnapshotCompleted, r, s.session(gr), objects)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, gr)
		s.finished[gr] = true
	}
	return err
}

// session gives the session of the snapshot that has begun, or begins one. It stays the
// same until that is finished, so that a marker that is tried again has the same id.
func (s *snapshots) session(gr schema.GroupResource) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[gr] == "" {
		s.sessions[gr] = strconv.FormatInt(time.Now().UnixMilli(), 36)
	}
	return s.sessions[gr]
}

func (s *snapshots) put(ctx context.Context, t event.Type, r event.Resource, session string, objects int) error {
	m, err := s.builder.Marker(t, r, session, objects, time.Now())
	if err != nil {
		return err
	}
	// A marker has no position to expect. So that an attempt which landed
	// unanswered is not repeated, look first.
	if _, id, err := s.bus.marked(ctx, r.GroupResource()); err != nil || id == m.ID {
		return err
	}
	return publishMarker(ctx, s.bus, m)
}

// termSnapshots is those of the present term.
type termSnapshots struct{ *pipeline }

var _ informers.Snapshots = termSnapshots{}

var errAtRest = errors.New("it is not for us to write")

func (s termSnapshots) Completed(ctx context.Context, gr schema.GroupResource) (bool, error) {
	if t := s.term.Load(); t != nil {
		return t.snapshots.Completed(ctx, gr)
	}
	return false, errAtRest
}

func (s termSnapshots) Started(ctx context.Context, r event.Resource) error {
	if t := s.term.Load(); t != nil {
		return t.snapshots.Started(ctx, r)
	}
	return errAtRest
}

func (s termSnapshots) Finished(ctx context.Context, r event.Resource, objects int) error {
	if t := s.term.Load(); t != nil {
		return t.snapshots.Finished(ctx, r, objects)
	}
	return errAtRest
}

// publishMarker waits for the acknowledgement.
func publishMarker(ctx context.Context, to publish.Publisher, m *event.Message) (err error) {
	result := make(chan error, 1)
	to.Publish(ctx, m, func(_ uint64, err error) { result <- err })
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", m.ID, err)
	}
	return nil
}
