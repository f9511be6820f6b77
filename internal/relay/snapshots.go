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
)

// snapshots is the progress of the snapshots in a term.
type snapshots struct {
	mu       sync.Mutex
	sessions map[schema.GroupResource]string // of snapshots in progress
	finished map[schema.GroupResource]bool
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

func (s *snapshots) finish(gr schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, gr)
	s.finished[gr] = true
}

// markers publishes the snapshot markers of first syncs while this process is the leader.
type markers struct{ *Relay }

var _ firstsync.Markers = markers{}

var errNotLeader = errors.New("not the leader")

func (m markers) Completed(ctx context.Context, gr schema.GroupResource) (bool, error) {
	t := m.term.Load()
	if t == nil {
		return false, errNotLeader
	}
	if !t.bus.Readable {
		t.snapshots.mu.Lock()
		defer t.snapshots.mu.Unlock()
		return t.snapshots.finished[gr], nil
	}
	last, _, err := t.bus.LastMarker(ctx, gr)
	return last == event.SnapshotCompleted, err
}

func (m markers) Started(ctx context.Context, r event.Resource) error {
	return m.put(ctx, event.SnapshotStarted, r, 0)
}

func (m markers) Finished(ctx context.Context, r event.Resource, objects int) error {
	return m.put(ctx, event.SnapshotCompleted, r, objects)
}

func (m markers) put(ctx context.Context, of event.Type, r event.Resource, objects int) error {
	t := m.term.Load()
	if t == nil {
		return errNotLeader
	}
	gr := r.GroupResource()
	marker, err := t.builder.Marker(of, r, t.snapshots.session(gr), objects, time.Now())
	if err != nil {
		return err
	}
	// A marker has no expected position. So first check whether an earlier attempt that received no
	// response was stored.
	_, id, err := t.bus.LastMarker(ctx, gr)
	if err == nil && id != marker.ID {
		err = publish.Put(ctx, t.bus, marker)
	}
	if err == nil && of == event.SnapshotCompleted {
		t.snapshots.finish(gr)
	}
	return err
}

// resolved publishes a consistency point.
func (t *term) resolved(ctx context.Context, p event.Point) error {
	m, err := t.builder.Resolved(p)
	if err != nil {
		return err
	}
	return publish.Put(ctx, t.bus, m)
}
