package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers"
)

// snapshots puts the markers of first syncs on a bus.
type snapshots struct {
	bus     *bus
	builder event.Builder
	session string
}

var _ informers.Snapshots = (*snapshots)(nil)

func newSnapshots(b *bus, builder event.Builder) *snapshots {
	return &snapshots{bus: b, builder: builder, session: strconv.FormatInt(time.Now().UnixMilli(), 36)}
}

func (s *snapshots) Completed(ctx context.Context, gr schema.GroupResource) (bool, error) {
	last, _, err := s.bus.marked(ctx, gr)
	return last == event.SnapshotCompleted, err
}

func (s *snapshots) Started(ctx context.Context, r event.Resource) error {
	return s.put(ctx, event.SnapshotStarted, r, 0)
}

func (s *snapshots) Finished(ctx context.Context, r event.Resource, objects int) error {
	return s.put(ctx, event.SnapshotCompleted, r, objects)
}

func (s *snapshots) put(ctx context.Context, t event.Type, r event.Resource, objects int) error {
	m, err := s.builder.Marker(t, r, s.session, objects, time.Now())
	if err != nil {
		return err
	}
	// A marker has no position to expect. So that an attempt which landed
	// unanswered is not repeated, look first.
	if _, id, err := s.bus.marked(ctx, r.GroupResource()); err != nil || id == m.ID {
		return err
	}
	result := make(chan error, 1)
	s.bus.Publish(ctx, m, func(_ uint64, err error) { result <- err })
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
