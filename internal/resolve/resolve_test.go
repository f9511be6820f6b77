package resolve

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// stubInformers shows a resource without objects. The keys in dirty have changes that the bus lacks.
type stubInformers struct {
	selection uint64
	version   string
	dirty     map[event.Key]bool
	marked    map[event.Key]bool // dirty at the last mark
	looked    func()             // called before each lookup of a key
	known     *ledger.Ledger     // the events on the bus

	indexed, reported string // versions of the indexer and of the handler

	lost      uint64 // events that the bus is known to have lost
	recreated bool   // the bus was recreated and not loaded since
}

func (s *stubInformers) mark() {
	s.marked = map[event.Key]bool{}
	for k := range s.dirty {
		s.marked[k] = true
	}
}

func (s *stubInformers) Watched() []schema.GroupResource       { return []schema.GroupResource{configMaps} }
func (s *stubInformers) Selection(schema.GroupResource) uint64 { return s.selection }
func (s *stubInformers) Point(schema.GroupResource) (ledger.Point, bool) {
	s.mark()
	return ledger.Point{Point: event.Point{Resource: event.Resource{Version: "v1", Resource: configMaps.Resource, Kind: "ConfigMap", Namespaced: true}, Version: s.version, AsOf: time.Now(), Taken: time.Now()}, Selection: s.selection}, true
}
func (s *stubInformers) Marked(p ledger.Point) ledger.Point               { s.mark(); return p }
func (s *stubInformers) Reached(ledger.Point) bool                        { return len(s.marked) == 0 }
func (s *stubInformers) Clean(schema.GroupResource, func(event.Key) bool) {}
func (s *stubInformers) IsClean(k event.Key) bool                         { s.looked(); return !s.dirty[k] }
func (s *stubInformers) Reported(event.Key) string                        { return s.reported }
func (s *stubInformers) Lookup(k event.Key) (v event.View) {
	s.known.Describe(k, &v)
	v.Version = s.indexed
	return v
}

func configMapKey(name string) event.Key {
	return event.Key{Resource: configMaps.Resource, Namespace: "default", Name: name}
}

// newStubResolver returns a Resolver with one object on the bus that no informer shows. The last
// result counts the comparisons that the Resolver requests.
func newStubResolver() (*Resolver, *stubInformers, *int) {
	s, asked := &stubInformers{selection: 1, version: "5", dirty: map[event.Key]bool{}, looked: func() {}, known: ledger.New()}, 0
	c := s.known.NewTerm()
	c.Put(configMapKey("gone"), event.Acked{UID: "gone", ResourceVersion: "1", Position: 2})
	return New(Config{
		Informers: s, Checkpoint: c, Losses: func() (uint64, bool) { return s.lost, !s.recreated }, Compare: func(schema.GroupResource) { asked++ },
		Interval: time.Second, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}), s, &asked
}

// TestPointWaitsForWhatAgreesLeavesOut verifies that a point waits for changes that agrees ignores.
// A comparison finds the delete of an object after the version of the point was taken, but before
// the resolver looks up the object.
func TestPointWaitsForWhatAgreesLeavesOut(t *testing.T) {
	r, s, _ := newStubResolver()
	s.looked = func() { s.dirty[configMapKey("gone")] = true }
	of := r.of(configMaps)
	if !r.take(configMaps, of) || !r.isReported(of) {
		t.Fatal("no point is taken")
	}
	if s.Reached(*of.pending) {
		t.Error("the point is reached, and the bus shows an object that is gone")
	}
}

// TestPointAsksForAComparison verifies that the resolver requests a comparison if the bus shows an
// object that no informer shows. Only a comparison decides whether such an object may stay on the
// bus, and a change of the selection does not always cause a comparison.
func TestPointAsksForAComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, asked := newStubResolver()
		of := r.of(configMaps)
		wantAsked := func(taken bool, want int) {
			t.Helper()
			time.Sleep(time.Second)
			if got := r.take(configMaps, of); got != taken || *asked != want {
				t.Fatalf("taken: %t, and %d comparisons were asked for; want %t and %d", got, *asked, taken, want)
			}
		}
		wantAsked(false, 1)
		wantAsked(false, 1) // no second request within requestInterval
		time.Sleep(requestInterval)
		wantAsked(false, 2) // the comparison did not decide about every object
		r.compared(configMaps, s.selection)
		wantAsked(true, 2)
		of.pending = nil
		s.selection, s.version = 2, "6"
		time.Sleep(requestInterval)
		wantAsked(false, 3)
		r.compared(configMaps, s.selection)
		wantAsked(true, 3)
	})
}

// TestPointWaitsForTheHandler verifies that the resolver doesn't rely on a comparison while the handler is
// behind the indexer. The object may have been deleted after the comparison found it in the indexer, and the ledger
// doesn't have its tombstone yet.
func TestPointWaitsForTheHandler(t *testing.T) {
	for name, c := range map[string]struct {
		indexed, reported string
		want              bool
	}{
		"behind":                 {"6", "5", false},
		"unknown":                {"6", "", false},
		"up to date":             {"6", "6", true},
		"later than the indexer": {"6", "7", true},
		"no informer":            {"", "", true},
		"without an order":       {"y", "x", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, _ := newStubResolver()
			s.indexed, s.reported = c.indexed, c.reported
			published := 0
			r.Publish = func(context.Context, event.Point) error { published++; return nil }
			r.compared(configMaps, s.selection)
			r.step(t.Context(), configMaps, r.of(configMaps))
			if (published > 0) != c.want {
				t.Fatalf("%d points are published, want one: %t", published, c.want)
			}
			if c.want {
				return
			}
			s.dirty[configMapKey("gone")] = true // the handler reports the delete
			s.reported = s.indexed
			r.step(t.Context(), configMaps, r.of(configMaps))
			if published > 0 {
				t.Error("a point is published before the delete")
			}
			delete(s.marked, configMapKey("gone")) // the bus has the delete
			r.step(t.Context(), configMaps, r.of(configMaps))
			if published == 0 {
				t.Error("no point is published after the delete")
			}
		})
	}
}

// TestPendingPointAndTheSelection verifies that a pending point is discarded when the selection changes, although the
// handler never reports what the point waits for.
func TestPendingPointAndTheSelection(t *testing.T) {
	r, s, _ := newStubResolver()
	s.indexed, s.reported = "6", "5"
	r.compared(configMaps, s.selection)
	of := r.of(configMaps)
	r.step(t.Context(), configMaps, of)
	if of.pending == nil {
		t.Fatal("no point is pending, so this test verifies nothing")
	}
	s.selection++
	r.step(t.Context(), configMaps, of)
	if of.pending != nil {
		t.Error("the point is still pending")
	}
}

// TestAwaited verifies that a point waits for the latest version of each informer.
func TestAwaited(t *testing.T) {
	a := awaited{}
	other := configMapKey("b")
	other.Namespace = "other"
	for _, is := range []seen{{configMapKey("a"), "5"}, {configMapKey("b"), "7"}, {configMapKey("c"), "6"}, {other, "2"}} {
		a.add(is.key, is.version)
	}
	if len(a) != 2 || a["default"].version != "7" || a["other"].version != "2" {
		t.Errorf("awaited %+v", a)
	}
}

// TestComparing verifies that a comparison counts only if it decided about every object, and only for
// the selection that applied when it began.
func TestComparing(t *testing.T) {
	for name, c := range map[string]struct{ decided, reselected, want bool }{
		"decided":                             {true, false, true},
		"something waits":                     {false, false, false},
		"the selection has changed meanwhile": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, _ := newStubResolver()
			s.selection = 7
			r.Comparing(configMaps, func() bool {
				if c.reselected {
					s.selection++
				}
				return c.decided
			})
			if got := r.isCompared(configMaps); got != c.want {
				t.Errorf("compared: %t", got)
			}
		})
	}
}

// slowBus acknowledges each point after a delay.
type slowBus struct {
	after     time.Duration
	published int
}

func (b *slowBus) publish(context.Context, event.Point) error {
	b.published++
	time.Sleep(b.after)
	return nil
}

// TestPointOfAFormerSelection verifies that a pending point is dropped if the selection changes. An
// informer may have ended, and then the missing changes are unknown.
func TestPointOfAFormerSelection(t *testing.T) {
	r, s, _ := newStubResolver()
	sink := &slowBus{}
	r.Publish = sink.publish
	r.compared(configMaps, s.selection)
	s.dirty[configMapKey("web")] = true
	of := r.of(configMaps)
	r.step(t.Context(), configMaps, of)
	if of.pending == nil || sink.published > 0 {
		t.Fatalf("%d points are published, and %v waits", sink.published, of.pending)
	}
	s.selection, s.dirty, s.marked = 2, nil, nil
	r.step(t.Context(), configMaps, of)
	if of.pending != nil || sink.published > 0 {
		t.Errorf("%d points are published, and %v waits; want none", sink.published, of.pending)
	}
}

// TestPointOfABusThatLostEvents verifies that no point is published after the bus loses events until
// the bus agrees with the cluster again. This applies to a pending point and to a later one.
func TestPointOfABusThatLostEvents(t *testing.T) {
	for name, lose := range map[string]func(*stubInformers){
		"the stream is recreated":        func(s *stubInformers) { s.recreated = true },
		"a load finds that it lost them": func(s *stubInformers) { s.lost++ },
	} {
		t.Run(name, func(t *testing.T) {
			r, s, asked := newStubResolver()
			sink := &slowBus{}
			r.Publish, r.Interval = sink.publish, 0
			r.compared(configMaps, s.selection)
			s.dirty[configMapKey("web")] = true
			of := r.of(configMaps)
			r.step(t.Context(), configMaps, of)
			if of.pending == nil {
				t.Fatal("no point is taken")
			}
			lose(s)
			s.dirty, s.marked = nil, nil
			r.step(t.Context(), configMaps, of)
			if of.pending != nil || sink.published > 0 {
				t.Errorf("%d points are published, and %v waits; want none", sink.published, of.pending)
			}
			r.compared(configMaps, 0) // the bus no longer agrees with the cluster
			r.step(t.Context(), configMaps, of)
			if of.pending != nil || sink.published > 0 {
				t.Errorf("%d points are published before the bus agrees with the cluster, and %v waits; want none", sink.published, of.pending)
			}
			s.recreated = false
			s.lost++
			r.compared(configMaps, s.selection)
			r.step(t.Context(), configMaps, of)
			if sink.published != 1 {
				t.Errorf("%d points are published when the bus agrees again, want 1; %d comparisons", sink.published, *asked)
			}
		})
	}
}

// TestPointsKeepTheirInterval verifies that two points keep the minimum interval, even if the bus
// acknowledges the first point late.
func TestPointsKeepTheirInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, _ := newStubResolver()
		sink := &slowBus{after: 10 * time.Second}
		r.Publish = sink.publish
		r.compared(configMaps, s.selection)
		of := r.of(configMaps)
		for range 2 {
			r.step(t.Context(), configMaps, of)
			s.version += "0"
		}
		if n := sink.published; n != 1 {
			t.Errorf("%d points within an interval", n)
		}
		time.Sleep(time.Second)
		r.step(t.Context(), configMaps, of)
		if n := sink.published; n != 2 {
			t.Errorf("%d points after an interval, want 2", n)
		}
	})
}

// TestAgeWithoutAPoint verifies that the age grows from the first sync on if the comparison that the
// first point waits for always fails. So an alert can fire.
func TestAgeWithoutAPoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, _ := newStubResolver()
		r.Publish = (&slowBus{}).publish
		age := func() (ages []float64) {
			t.Helper()
			registry := prometheus.NewRegistry()
			registry.MustRegister(r)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == "kuberelay_resolved_age_seconds" {
						ages = append(ages, m.GetGauge().GetValue())
					}
				}
			}
			return ages
		}
		want := func(want ...float64) {
			t.Helper()
			if got := age(); !slices.Equal(got, want) {
				t.Errorf("ages: got %v, want %v", got, want)
			}
		}
		r.compared(configMaps, 0) // without Once, as if points were disabled
		want()
		time.Sleep(time.Second)
		first := time.Now()
		r.Once(t.Context())
		time.Sleep(time.Minute)
		r.Once(t.Context())
		want(60)
		if got := r.MissingSince(configMaps); !got.Equal(first) || !r.ConsistentAsOf(configMaps).IsZero() {
			t.Errorf("missing since %v, want %v; consistent as of %v, want never", got, first, r.ConsistentAsOf(configMaps))
		}
		r.compared(configMaps, s.selection)
		time.Sleep(time.Second)
		r.Once(t.Context())
		want(0)
		if got := r.MissingSince(configMaps); !got.IsZero() {
			t.Errorf("with a point: missing since %v", got)
		}
	})
}
