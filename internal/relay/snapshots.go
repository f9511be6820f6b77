package relay

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/firstsync"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
)

// snapshots publishes the snapshot markers of first syncs, and the consistency points.
type snapshots struct {
	bus     *bus.Bus
	builder event.Builder

	mu       sync.Mutex
	sessions map[schema.GroupResource]string // of snapshots in progress
	finished map[schema.GroupResource]bool
}

var _ firstsync.Markers = (*snapshots)(nil)

func newSnapshots(b *bus.Bus, builder event.Builder) *snapshots {
	return &snapshots{bus: b, builder: builder, sessions: map[schema.GroupResource]string{}, finished: map[schema.GroupResource]bool{}}
}

func (s *snapshots) Completed(ctx context.Context, gr schema.GroupResource) (bool, error) {
	if !s.bus.Readable {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.finished[gr], nil
	}
	last, _, err := s.bus.LastMarker(ctx, gr)
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

// session returns the session of the snapshot in progress, or a new session. A snapshot keeps its
// session until it is finished, so that a marker that is published again has the same ID.
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
	// A marker has no expected position. So first check whether an earlier attempt that received no
	// response was stored.
	if _, id, err := s.bus.LastMarker(ctx, r.GroupResource()); err != nil || id == m.ID {
		return err
	}
	return publish.Put(ctx, s.bus, m)
}

// resolved publishes a consistency point.
func (s *snapshots) resolved(ctx context.Context, p event.Point) error {
	m, err := s.builder.Resolved(p)
	if err != nil {
		return err
	}
	return publish.Put(ctx, s.bus, m)
}

// leaderSnapshots publishes markers while this process is the leader.
type leaderSnapshots struct{ *Relay }

var _ firstsync.Markers = leaderSnapshots{}

var errNotLeader = errors.New("not the leader")

func (s leaderSnapshots) Completed(ctx context.Context, gr schema.GroupResource) (bool, error) {
	if t := s.term.Load(); t != nil {
		return t.snapshots.Completed(ctx, gr)
	}
	return false, errNotLeader
}

func (s leaderSnapshots) Started(ctx context.Context, r event.Resource) error {
	if t := s.term.Load(); t != nil {
		return t.snapshots.Started(ctx, r)
	}
	return errNotLeader
}

func (s leaderSnapshots) Finished(ctx context.Context, r event.Resource, objects int) error {
	if t := s.term.Load(); t != nil {
		return t.snapshots.Finished(ctx, r, objects)
	}
	return errNotLeader
}
