package replica

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestComplete verifies that a list waits until the first snapshot is complete. The event that
// completes the state makes the feed read again, because other partitions can be behind. Without
// markers, a ListerWatcher that has read a consistency point before waits for the next one. The log has
// the reason for waiting once.
func TestComplete(t *testing.T) {
	started, completed := marker(t, event.SnapshotStarted), marker(t, event.SnapshotCompleted)
	a, b := state{name: "a", version: 1}.message(t), state{name: "b", version: 2}.message(t)
	resolved := point(t, 3)
	for _, test := range []struct {
		name   string
		before []*event.Message // read before the end of the bus; nil stands for a loss and a new list
		after  []*event.Message
		listed bool // the list is complete at the end of the bus
		again  bool // the last message makes the feed read again
		waits  string
	}{
		{"complete", []*event.Message{completed, a}, nil, true, false, ""},
		{"complete and empty", []*event.Message{completed}, nil, true, false, ""},
		{"complete in between", []*event.Message{started, a, completed}, nil, true, false, ""},
		{"without markers", []*event.Message{a}, nil, true, false, ""},
		{"nothing", nil, nil, false, false, waitForAnything},
		{"nothing, then the start", nil, []*event.Message{started}, false, false, waitForAnything},
		{"nothing, then an object", nil, []*event.Message{a}, false, true, waitForAnything},
		{"started", []*event.Message{started, a}, []*event.Message{b}, false, false, waitForSnapshot},
		{"started, then completed", []*event.Message{started, a}, []*event.Message{b, completed}, false, true, waitForSnapshot},
		{"lost, and published again in part", []*event.Message{resolved, nil, a}, []*event.Message{b}, false, false, waitForPoint},
		{"lost, and published again", []*event.Message{resolved, nil, a}, []*event.Message{b, resolved}, false, true, waitForPoint},
		{"lost, and published again before", []*event.Message{resolved, nil, a, b, resolved}, nil, true, false, ""},
		{"lost, and a new first snapshot", []*event.Message{resolved, nil, started, a, completed}, nil, true, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := newDecoder(configMaps, nil)
			if err != nil {
				t.Fatal(err)
			}
			listed := false
			var log bytes.Buffer
			bus := &Bus{log: slog.New(slog.NewTextHandler(&log, nil))}
			f := &feed{lw: bus.ListerWatcher(configMaps, Options{Labels: labels.Everything()}), decoder: d, started: func() error { listed = true; return nil }}
			f.subscription()
			at := publish.Delivery{Cluster: cluster}
			for _, m := range test.before {
				if m == nil {
					f.subscription()
					continue
				}
				at.Position++
				if err := f.take(m, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.caughtUp(publish.Cursor{}); err != nil || listed != test.listed {
				t.Fatalf("listed: %t, %v; want %t", listed, err, test.listed)
			}
			if err := f.caughtUp(publish.Cursor{}); err != nil {
				t.Fatal(err)
			}
			told := 0
			if test.waits != "" {
				told = 1
			}
			if strings.Count(log.String(), "level=INFO") != told || strings.Count(log.String(), "resource=configmaps") != told || !strings.Contains(log.String(), test.waits) {
				t.Errorf("logged %q, want %d lines about the resource", log.String(), told)
			}
			for _, m := range test.after {
				at.Position++
				err = f.take(m, at)
			}
			if got := errors.Is(err, errAgain); got != test.again || err != nil && !got {
				t.Errorf("got %v, want to read again: %t", err, test.again)
			}
		})
	}
}

// TestTombstoneOfAnotherCluster verifies that a tombstone of another cluster does not remove an object
// with the same name.
func TestTombstoneOfAnotherCluster(t *testing.T) {
	d, err := newDecoder(configMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{lw: (&Bus{}).ListerWatcher(configMaps, Options{}), decoder: d, started: func() error { return nil }}
	f.subscription()
	if err := f.take(state{name: "a", version: 1}.message(t), publish.Delivery{Cluster: cluster, Position: 1}); err != nil {
		t.Fatal(err)
	}
	f.tombstone(configMapResource.Key("default", "a"), publish.Delivery{Cluster: "another", Position: 2})
	if err := f.caughtUp(publish.Cursor{}); err != nil || len(f.table.entries) != 1 {
		t.Errorf("the list has %d objects, %v; want 1", len(f.table.entries), err)
	}
}

// TestPlacesOfAQuietBus verifies that the tables of old lists are released in a program that lists
// periodically and never watches.
func TestPlacesOfAQuietBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 10 * time.Second
		lw := (&Bus{}).ListerWatcher(configMaps, Options{})
		c := publish.Cursor{Stream: time.Unix(1, 0), Positions: map[publish.Log]uint64{{}: 7}}
		for range 1000 {
			lw.leave(place{cursor: c, table: &table{}})
			time.Sleep(every)
		}
		if n, most := len(lw.places[resourceVersion(c)]), int(publish.MaxAway/every)+1; n > most {
			t.Errorf("%d tables are kept, want %d at most", n, most)
		}
	})
}

// TestCaughtUpKeepsLaterPositions verifies that caughtUp does not set positions back. The bus can
// deliver events that follow the current state before it calls caughtUp.
func TestCaughtUpKeepsLaterPositions(t *testing.T) {
	d, err := newDecoder(configMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{lw: (&Bus{}).ListerWatcher(configMaps, Options{}), decoder: d, started: func() error { return nil }}
	f.subscription()
	if err := f.take(state{name: "a", version: 1}.message(t), publish.Delivery{Cluster: cluster, Position: 7}); err != nil {
		t.Fatal(err)
	}
	if err := f.caughtUp(publish.Cursor{Positions: map[publish.Log]uint64{{}: 5}}); err != nil {
		t.Fatal(err)
	}
	if at := f.cursor.Positions[publish.Log{}]; at != 7 {
		t.Errorf("the list is at %d, want 7", at)
	}
}
