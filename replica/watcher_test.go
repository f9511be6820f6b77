package replica

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestSuccessor verifies that a watch shows a DELETED and an ADDED event for an object that was deleted
// and recreated, even if the delete is no longer on the bus.
func TestSuccessor(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		const in = `{"app":"web"}`
		w.sync(t)
		w.puts(t, state{name: "a", version: 1, labels: in})
		for selector, first := range map[string]string{"": "DELETED default/a@", "app=web": "DELETED default/a@1"} {
			parsed, err := labels.Parse(selector)
			if err != nil {
				t.Fatal(err)
			}
			lw := w.open(t).ListerWatcher(configMaps, Options{Labels: parsed})
			version, _, _ := list(t, lw)
			events := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version})
			w.puts(t, state{name: "a", version: 3, labels: in, uid: "second"})
			gone := events.next()
			if got := string(gone.Type) + " " + show(gone.Object); got != first || metaOf(gone.Object).GetUID() != "uid-of-a" {
				t.Fatalf("got %s (%v), want %s", got, gone.Object, first)
			}
			events.want("ADDED default/a@3")
			w.puts(t, state{name: "a", version: 4, labels: in, uid: "second"})
			events.want("MODIFIED default/a@4")
			w.puts(t, state{name: "a", version: 1, labels: in})
		}
	})
}

// TestUnread verifies that watches that nobody reads do not block other watches.
func TestUnread(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		w.puts(t, state{name: "a", version: 1})
		lw := w.open(t).ListerWatcher(configMaps, Options{})
		for range runtime.GOMAXPROCS(0) {
			version, _, _ := list(t, lw)
			watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version})
		}
		version, _, _ := list(t, lw)
		events := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version})
		for version := 2; version < 5; version++ {
			w.puts(t, state{name: "a", version: version}, state{name: "b", version: version}, state{name: "c", version: version})
			for range 3 {
				events.next()
			}
		}
	})
}

// TestLoss verifies that a watch expires if the stream was recreated or lost all its messages, and that
// the next list has the current objects.
func TestLoss(t *testing.T) {
	for name, lose := range map[string]func(*writer){
		"recreated": func(w *writer) { w.recreate() },
		"purged":    func(w *writer) { w.empty() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newNATS(t)
			w.sync(t)
			w.puts(t, state{name: "a", version: 1}, state{name: "b", version: 2})
			lw := w.open(t).ListerWatcher(configMaps, Options{})
			version, _, _ := list(t, lw)
			hour := int64(3600)
			events := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &hour})
			w.puts(t, state{name: "a", version: 3})
			events.want("MODIFIED default/a@3")
			version, _, _ = list(t, lw)
			lose(w)
			w.puts(t, state{name: "a", version: 3}) // the forwarder publishes the object again
			for got := events.next(); got.Type != watch.Error; got = events.next() {
				if got.Type != watch.Modified {
					t.Errorf("got %v", got)
				}
			}
			late := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version}) // continues from the list before the loss
			late.want("ERROR 410")
			_, got, _ := list(t, lw)
			wantList(t, got, "default/a@3")
		})
	}
}

// TestRecreatedTopic verifies that a watch expires if the topic was recreated since the list, even if the
// new topic is longer. In an earlier version, the watch continued at its position in the old topic.
func TestRecreatedTopic(t *testing.T) {
	w := newKafka(t)
	w.sync(t)
	w.puts(t, state{name: "a", version: 1})
	lw := w.open(t).ListerWatcher(configMaps, Options{})
	version, _, _ := list(t, lw)
	w.recreate()
	w.sync(t)
	w.puts(t, state{name: "a", version: 1}, state{name: "a", version: 2})
	watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version}).want("ERROR 410")
}

// TestListAfterALoss verifies that after a stream lost everything, a list waits until the forwarder has
// published everything again, if the reader has seen a consistency point before. So an informer that
// lists again does not lose existing objects.
func TestListAfterALoss(t *testing.T) {
	for name, lose := range map[string]func(*writer){
		"recreated": func(w *writer) { w.recreate() },
		"purged":    func(w *writer) { w.empty() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newNATS(t)
			w.sync(t)
			w.puts(t, state{name: "a", version: 1}, state{name: "b", version: 2})
			w.points[0](3)
			bus := w.open(t)
			logged := make(chan string, 10)
			bus.log = slog.New(slog.NewTextHandler(lines(logged), nil))
			lw := bus.ListerWatcher(configMaps, Options{})
			list(t, lw)
			lose(w)
			w.puts(t, state{name: "a", version: 1, kind: event.Created})
			listed := listLater(t, lw)
			select {
			case got := <-listed:
				t.Fatalf("listed %q before everything was published again", got)
			case line := <-logged:
				if !strings.Contains(line, waitForPoint) {
					t.Errorf("logged %q", line)
				}
			}
			w.puts(t, state{name: "b", version: 2, kind: event.Created})
			w.points[0](4)
			wantList(t, <-listed, "default/a@1", "default/b@2")
		})
	}
}

// lines is a log writer that sends each line to a channel.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestTruncatedLeavesTheSelector verifies that a DELETED event has the annotation of a truncated object if
// and only if the last state that matched was truncated.
func TestTruncatedLeavesTheSelector(t *testing.T) {
	d, err := newDecoder(configMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(d, labels.SelectorFromSet(labels.Set{"app": "web"}))
	for _, truncated := range []bool{true, false} {
		before, err := changeOf(state{name: "a", version: 1, labels: `{"app":"web"}`, truncated: truncated}.message(t))
		if err != nil {
			t.Fatal(err)
		}
		after, err := changeOf(state{name: "a", version: 2, labels: `{"app":"db"}`, truncated: !truncated}.message(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := table.add(before); err != nil {
			t.Fatal(err)
		}
		events, err := table.apply(after)
		if err != nil || len(events) != 1 || events[0].Type != watch.Deleted {
			t.Fatalf("got %v, %v, want a delete", events, err)
		}
		if got := metaOf(events[0].Object).GetAnnotations()[TruncatedAnnotation] == "true"; got != truncated {
			t.Errorf("the deleted object is marked as truncated: %t, want %t", got, truncated)
		}
	}
}
