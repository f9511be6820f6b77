package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
)

// unacknowledged is a bus that stores messages and reports that no acknowledgement arrived.
type unacknowledged struct {
	silent
	stored []*event.Message
}

func (u *unacknowledged) Publish(_ context.Context, m *event.Message, done func(uint64, error)) {
	u.stored = append(u.stored, m)
	done(0, errors.New("timed out"))
}

func (u *unacknowledged) LastMarker(context.Context, schema.GroupResource) (event.Type, string, error) {
	if len(u.stored) == 0 {
		return "", "", nil
	}
	last := u.stored[len(u.stored)-1]
	return event.Type(last.Attribute("type")), last.ID, nil
}

// TestAMarkerWithoutAnAcknowledgement verifies that a marker that the bus stored is not on the bus
// twice if its acknowledgement was lost. A marker has no expected position, so the bus does not
// reject the second one. The next snapshot has other markers.
func TestAMarkerWithoutAnAcknowledgement(t *testing.T) {
	sink := &unacknowledged{}
	tm := newTestTerm(&bus.Bus{Bus: sink, Readable: true}, 0, slog.New(slog.DiscardHandler))
	tm.builder.Cluster = "prod"
	tm.snapshots = snapshots{sessions: map[schema.GroupResource]string{}, finished: map[schema.GroupResource]bool{}}
	tm.term.Store(tm)
	pods := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	put := func(f func() error) {
		t.Helper()
		if first, second := f(), f(); first == nil || second != nil {
			t.Errorf("got %v, then %v, want an error and then nil", first, second)
		}
	}
	m := markers{tm.Relay}
	put(func() error { return m.Started(t.Context(), pods) })
	put(func() error { return m.Finished(t.Context(), pods, 7) })
	put(func() error { return m.Started(t.Context(), pods) })
	var got []event.Type
	for _, s := range sink.stored {
		got = append(got, event.Type(s.Attribute("type")))
	}
	if want := []event.Type{event.SnapshotStarted, event.SnapshotCompleted, event.SnapshotStarted}; !slices.Equal(got, want) {
		t.Errorf("the bus has the markers %v, want %v", got, want)
	}
}
