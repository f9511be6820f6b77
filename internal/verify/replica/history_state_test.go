package replica

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// TestHistoryState verifies that the last event is the state, even if it violates the order.
func TestHistoryState(t *testing.T) {
	h := fold(t, []string{"created A 5", "updated A 7 <5", "updated A 6 <7"})
	if e := h.state(web); e.Version != "6" || !e.Live() || e.Key != web || e.Position != 3 {
		t.Errorf("got %+v", e)
	}
	h = fold(t, []string{"created A 5", "deleted A 7 <5"})
	if e := h.state(web); e.Live() || e.UID != "A" {
		t.Errorf("got %+v", e)
	}
	if e := h.state(event.Key{Name: "other"}); e.Live() || e.UID != "" {
		t.Errorf("got %+v", e)
	}
}

// TestHistoryDoubtsBeyond verifies that settleDoubts does not report doubts after its position.
func TestHistoryDoubtsBeyond(t *testing.T) {
	h := fold(t, []string{"created A 1"})
	h.kept = func(event.Key, uint64) (bool, error) { return false, nil }
	if err := h.add(Event{Key: web, Position: 9, Type: wire.Updated, UID: "A", ID: "A.9", Version: "9", Previous: "8"}, nil); err != nil {
		t.Fatal(err)
	}
	h.settleDoubts(8)
	if len(h.problems) != 0 {
		t.Errorf("got %+v", h.problems)
	}
}

func TestHistoryAskFails(t *testing.T) {
	h := fold(t, []string{"created A 1"})
	down := errors.New("down")
	h.kept = func(event.Key, uint64) (bool, error) { return false, down }
	if err := h.add(Event{Key: web, Position: 9, Type: wire.Updated, UID: "A", ID: "A.9", Version: "9", Previous: "8"}, nil); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
}

func TestHistoryMarkers(t *testing.T) {
	h := fold(t, nil)
	k := event.Key{Group: "apps", Resource: "deployments"}
	h.addMarker(k, "s", "started.1", 1, nil)
	h.addMarker(k, "s", "completed.1", 2, nil)
	h.addMarker(k, "other", "completed.1", 3, nil)
	h.addMarker(event.Key{}, "claim", "claimed.1", 3, nil)
	if len(h.problems) != 0 {
		t.Errorf("got %+v", h.problems)
	}
	h.addMarker(k, "s", "completed.1", 4, nil)
	h.addMarker(k, "s", "x", 5, []string{"unknown type"})
	if len(h.problems) != 2 || h.problems[0].Kind != report.Misordered || h.problems[0].Position != 4 || h.problems[1].Kind != report.Malformed {
		t.Errorf("got %+v", h.problems)
	}
}

// TestHistoryRecent verifies that the memory for a watched object is bounded.
func TestHistoryRecent(t *testing.T) {
	h := fold(t, []string{"created A 1"})
	h.watch(web)
	for n := uint64(2); n <= 1000; n++ {
		e := Event{Key: web, Position: n, Type: wire.Updated, UID: "A", ID: fmt.Sprint("A.", n), Version: fmt.Sprint(n), Previous: fmt.Sprint(n - 1)}
		if err := h.add(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	recent := h.objects[web].recent
	if len(recent) > maxRecent || len(recent) < maxRecent/2 || recent[len(recent)-1].Version != "1000" {
		t.Errorf("%d are remembered, the last is %s", len(recent), recent[len(recent)-1].Version)
	}
}
