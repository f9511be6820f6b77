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

// stubInformers is a resource without objects, of which a change of some keys is on its way to
// the bus.
type stubInformers struct {
	selection uint64
	version   string
	dirty     map[event.Key]bool
	marked    map[event.Key]bool // dirty at the last mark
	looked    func()             // called before each look at a key

	lost      uint64 // events that the bus has lost
	recreated bool   // the bus, and not loaded since
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
func (s *stubInformers) Lookup(event.Key) event.View                      { return event.View{} }

func configMapKey(name string) event.Key {
	return event.Key{Resource: configMaps.Resource, Namespace: "default", Name: name}
}

// newStubResolver has one object on the bus that no informer shows. It counts the comparisons
// that it asks for.
func newStubResolver() (*Resolver, *stubInformers, *int) {
	s, asked, c := &stubInformers{selection: 1, version: "5", dirty: map[event.Key]bool{}, looked: func() {}}, 0, ledger.New().NewTerm()
	c.Put(configMapKey("gone"), event.Acked{UID: "gone", ResourceVersion: "1", Position: 2})
	return New(Config{
		Informers: s, Checkpoint: c, Losses: func() (uint64, bool) { return s.lost, !s.recreated }, Compare: func(schema.GroupResource) { asked++ },
		Interval: time.Second, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}), s, &asked
}

// TestPointWaitsForWhatAgreesLeavesOut: the comparison finds the delete of an object after the
// version of the point was taken, and before the resolver looks at the object.
func TestPointWaitsForWhatAgreesLeavesOut(t *testing.T) {
	r, s, _ := newStubResolver()
	s.looked = func() { s.dirty[configMapKey("gone")] = true }
	of := r.of(configMaps)
	if !r.take(configMaps, of) {
		t.Fatal("no point is taken")
	}
	if s.Reached(*of.pending) {
		t.Error("the point is reached, and the bus shows an object that is gone")
	}
}

// TestPointAsksForAComparison: whether an object that no informer shows may stay on the bus is
// the answer of a comparison. A change of the selection does not always cause one.
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
		wantAsked(false, 1) // not again at once
		time.Sleep(requestInterval)
		wantAsked(false, 2) // the comparison left a question open
		r.Compared(configMaps, s.selection)
		wantAsked(true, 2)
		of.pending = nil
		s.selection, s.version = 2, "6"
		time.Sleep(requestInterval)
		wantAsked(false, 3)
		r.Compared(configMaps, s.selection)
		wantAsked(true, 3)
	})
}

// slowBus acknowledges after a time.
type slowBus struct {
	after     time.Duration
	published int
}

func (b *slowBus) publish(context.Context, event.Point) error {
	b.published++
	time.Sleep(b.after)
	return nil
}

// TestPointOfAFormerSelection: an informer ends while a point waits, and with it the knowledge
// of what the bus lacks.
func TestPointOfAFormerSelection(t *testing.T) {
	r, s, _ := newStubResolver()
	sink := &slowBus{}
	r.Publish = sink.publish
	r.Compared(configMaps, s.selection)
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

// TestPointOfABusThatLostEvents: a point that waits while the bus loses what it had, and one that is
// taken after it, wait until everything on the bus agrees with the cluster again.
func TestPointOfABusThatLostEvents(t *testing.T) {
	for name, lose := range map[string]func(*stubInformers){
		"the stream is recreated":        func(s *stubInformers) { s.recreated = true },
		"a load finds that it lost them": func(s *stubInformers) { s.lost++ },
	} {
		t.Run(name, func(t *testing.T) {
			r, s, asked := newStubResolver()
			sink := &slowBus{}
			r.Publish, r.Interval = sink.publish, 0
			r.Compared(configMaps, s.selection)
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
			r.Compared(configMaps, 0) // what is on the bus no longer agrees
			r.step(t.Context(), configMaps, of)
			if of.pending != nil || sink.published > 0 {
				t.Errorf("%d points are published before the bus agrees with the cluster, and %v waits; want none", sink.published, of.pending)
			}
			s.recreated = false
			s.lost++
			r.Compared(configMaps, s.selection)
			r.step(t.Context(), configMaps, of)
			if sink.published != 1 {
				t.Errorf("%d points are published when the bus agrees again, want 1; %d comparisons", sink.published, *asked)
			}
		})
	}
}

// TestPointsKeepTheirInterval: also if the bus acknowledges a point late.
func TestPointsKeepTheirInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, _ := newStubResolver()
		sink := &slowBus{after: 10 * time.Second}
		r.Publish = sink.publish
		r.Compared(configMaps, s.selection)
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

// TestAgeWithoutAPoint: if the comparison that the first point waits for always fails, the age grows
// from the first sync on, so that an alert can fire.
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
		r.Compared(configMaps, 0) // points can be off
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
		r.Compared(configMaps, s.selection)
		time.Sleep(time.Second)
		r.Once(t.Context())
		want(0)
		if got := r.MissingSince(configMaps); !got.IsZero() {
			t.Errorf("with a point: missing since %v", got)
		}
	})
}
