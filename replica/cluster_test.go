package replica

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestClusterWithoutObjects verifies a list without a selected cluster. The deletes and markers of a
// cluster without objects neither fail the list of the other cluster nor make it wait.
func TestClusterWithoutObjects(t *testing.T) {
	const other = "old"
	type message struct {
		cluster string
		*event.Message
	}
	in, out := `{"app":"web"}`, `{"app":"db"}`
	of := func(s state) message {
		if s.cluster == "" {
			s.cluster = cluster
		}
		return message{s.cluster, s.message(t)}
	}
	a, gone := of(state{name: "a", version: 1, labels: in}), of(state{name: "x", version: 1, cluster: other, kind: event.Deleted})
	started, completed := marker(t, event.SnapshotStarted), marker(t, event.SnapshotCompleted)
	for _, test := range []struct {
		name     string
		messages []message
		want     int    // number of objects
		waits    string // cluster that the list waits for
		fails    bool
	}{
		{"a delete after an object", []message{{cluster, completed}, a, gone}, 1, "", false},
		{"a delete before an object", []message{gone, {cluster, completed}, a}, 1, "", false},
		{"a delete of an equal name", []message{a, of(state{name: "a", version: 9, cluster: other, kind: event.Deleted})}, 1, "", false},
		{"created and deleted before", []message{of(state{name: "x", version: 1, cluster: other, labels: in}), gone, a}, 1, "", false},
		{"a first snapshot before", []message{{other, started}, {cluster, completed}, a}, 1, "", false},
		{"a first snapshot after", []message{{cluster, completed}, a, {other, started}}, 1, "", false},
		{"a first snapshot of its own", []message{{other, completed}, {cluster, started}, a}, 0, cluster, false},
		{"a first snapshot, and no object", []message{{cluster, completed}, {other, started}}, 0, other, false},
		{"a delete, and a first snapshot", []message{gone, {cluster, started}}, 0, cluster, false},
		{"an object that is not selected", []message{a, of(state{name: "a", version: 9, cluster: other, labels: out})}, 1, "", false},
		{"only the object of the other is selected", []message{of(state{name: "a", version: 9, cluster: other, labels: out}), a}, 1, "", false},
		{"objects of both", []message{a, of(state{name: "b", version: 9, cluster: other, labels: in})}, 0, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := newDecoder(configMaps, nil)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			bus := &Bus{log: slog.New(slog.NewTextHandler(&log, nil))}
			listed := false
			f := &feed{
				lw:      bus.ListerWatcher(configMaps, Options{Labels: labels.SelectorFromSet(labels.Set{"app": "web"})}),
				decoder: d, started: func() error { listed = true; return nil },
			}
			f.subscription()
			for i, m := range test.messages {
				err = errors.Join(err, f.take(m.Message, publish.Delivery{Cluster: m.cluster, Position: uint64(i + 1)}))
			}
			if test.fails {
				if err == nil || !strings.Contains(err.Error(), "set Options.Cluster") {
					t.Errorf("got %v, want an error that a cluster must be selected", err)
				}
				return
			}
			if err = errors.Join(err, f.caughtUp(publish.Cursor{})); err != nil {
				t.Fatal(err)
			}
			if waits := test.waits != ""; listed == waits || !waits && len(f.table.entries) != test.want {
				t.Errorf("listed: %t, %d objects; want %d", listed, len(f.table.entries), test.want)
			}
			if logged := log.String(); (logged != "") != (test.waits != "") || !strings.Contains(logged, test.waits) {
				t.Errorf("logged %q, want a wait for %q", logged, test.waits)
			}
		})
	}
}

// TestFirstSnapshotOfAClusterWithoutObjects verifies a list while a cluster without objects takes its
// first snapshot. The list waits until the first object shows that the list is about another cluster.
func TestFirstSnapshotOfAClusterWithoutObjects(t *testing.T) {
	d, err := newDecoder(configMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	bus := &Bus{log: slog.New(slog.DiscardHandler)}
	f := &feed{lw: bus.ListerWatcher(configMaps, Options{}), decoder: d}
	f.subscription()
	at := publish.Delivery{Cluster: "other", Position: 1}
	if err := errors.Join(f.take(marker(t, event.SnapshotStarted), at), f.caughtUp(publish.Cursor{})); err != nil {
		t.Fatal(err)
	}
	if err := f.take(state{name: "a", version: 1}.message(t), publish.Delivery{Cluster: cluster, Position: 2}); !errors.Is(err, errAgain) {
		t.Errorf("got %v, want to read again", err)
	}
}
