package informers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	kubediscovery "k8s.io/client-go/discovery"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var cluster = controlplanetest.Shared{Options: controlplane.Options{Users: map[string][]string{"reader": {"readers"}}}}

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// patience limits every wait. A reflector may pause for a minute after a refused request.
const patience = 3 * time.Minute

var (
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	priorityClasses = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}
)

// running is a Set that runs against a real API server, with a record of its calls. Each time the
// Set enqueues a key, running looks up the key immediately, as the fastest possible worker would. A
// test always waits for the state at the last enqueue, so it never sees a change that is not
// enqueued.
type running struct {
	*Set
	stubForwarder
	*reconcile.Comparer
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change of the fields below
	views     map[event.Key]event.View
	enqueued  map[event.Key]int
	buried    map[event.Key]bool // the key had a tombstone at some time
	compare   map[schema.GroupResource]int
	completed map[schema.GroupResource]int // number of objects in the completed marker
	started   map[schema.GroupResource]bool
	bus       map[event.Key]event.Acked
}

// start runs a Set until the end of the test.
func start(t *testing.T, config *rest.Config, c Config) *running {
	t.Helper()
	r := newRunning(t, config, c)
	r.run(t)
	return r
}

// newRunning returns a Set that does not run yet. The configuration must contain a selection.
// newRunning adds all other required fields.
func newRunning(t *testing.T, config *rest.Config, c Config) *running {
	t.Helper()
	r := &running{
		ended: make(chan struct{}), changed: make(chan struct{}),
		views: map[event.Key]event.View{}, enqueued: map[event.Key]int{}, buried: map[event.Key]bool{}, compare: map[schema.GroupResource]int{},
		completed: map[schema.GroupResource]int{}, started: map[schema.GroupResource]bool{}, bus: map[event.Key]event.Acked{},
	}
	c.Dynamic, c.Discovery = clients(t, config)
	c.Reads = c.Dynamic
	var err error
	if c.Streams, err = apistream.New(config); err != nil {
		t.Fatal(err)
	}
	c.Converter, c.Now, c.Registerer = decode.NewConverter(nil, ""), time.Now, prometheus.NewRegistry()
	c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	if c.Rediscover == 0 {
		c.Rediscover = time.Hour // polling finds no change during a test
	}
	c.Enqueue, c.EnqueueLowPriority = r.onEnqueue, r.onEnqueue
	c.Discovered = func() { r.change(func() {}) }
	c.Compare = func(gr schema.GroupResource) { r.change(func() { r.compare[gr]++ }) }
	c.Markers = r
	c.Ledger = ledger.New()
	r.Set = New(c)
	r.stubForwarder = stubForwarder{r.Set, c.Ledger.NewTerm()}
	r.Comparer = newComparer(r.Set)
	return r
}

func (r *running) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { r.stopRunning(t) })
}

func (r *running) stopRunning(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case <-r.ended:
	case <-time.After(patience):
		t.Error("Run does not return")
	}
}

func clients(t *testing.T, config *rest.Config) (dynamic.Interface, kubediscovery.DiscoveryInterface) {
	t.Helper()
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	discoveryClient, err := kubediscovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicClient, discoveryClient
}

func (r *running) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *running) onEnqueue(k event.Key) {
	v := r.Lookup(k)
	r.change(func() {
		r.views[k] = v
		r.enqueued[k]++
		r.buried[k] = r.buried[k] || len(v.Tombstones) > 0
	})
}

// Completed implements [firstsync.Markers], like Started and Finished. They simulate a bus that stores
// markers.
func (r *running) Completed(_ context.Context, gr schema.GroupResource) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.completed[gr]
	return ok, nil
}

// Started stores a marker. It returns an error if an object of the resource was enqueued before.
func (r *running) Started(_ context.Context, of event.Resource) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.enqueued {
		// A key can be enqueued because of a reference before its object exists.
		if k.GroupResource() == of.GroupResource() && r.views[k].Live != nil && !r.started[of.GroupResource()] {
			return fmt.Errorf("%s was enqueued before the marker", k)
		}
	}
	r.started[of.GroupResource()] = true
	return nil
}

// Finished stores a marker.
func (r *running) Finished(_ context.Context, of event.Resource, objects int) error {
	r.change(func() { r.completed[of.GroupResource()] = objects })
	return nil
}

// await waits until a condition is true. It evaluates the condition with the lock held.
func (r *running) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		ok, changed := condition(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-r.ended:
			t.Fatalf("%s: Run has returned", what)
		case <-deadline.C:
			t.Fatalf("%s: did not happen in time", what)
		}
	}
}

// awaitView waits until the view at the last enqueue of a key has this live object, nil for none,
// and tombstones of the gone objects.
func (r *running) awaitView(t *testing.T, what string, k event.Key, live *unstructured.Unstructured, gone ...*unstructured.Unstructured) {
	t.Helper()
	want := "-"
	if live != nil {
		want = string(live.GetUID()) + "." + live.GetResourceVersion()
	}
	for _, o := range gone {
		want += " [" + string(o.GetUID()) + "]"
	}
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s: last got %q of %s, want %q", what, got, k, want)
		}
	}()
	r.await(t, what, func() bool {
		v, ok := r.views[k]
		if !ok {
			return false
		}
		got = describeView(v)
		return got == want
	})
}

func describeView(v event.View) string {
	words := []string{"-"}
	if v.Live != nil {
		words[0] = string(v.Live.UID) + "." + v.Live.ResourceVersion
	}
	for _, t := range v.Tombstones {
		words = append(words, "["+t.UID+"]")
	}
	return strings.Join(words, " ")
}

// view returns the view at the last enqueue of a key.
func (r *running) view(k event.Key) event.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.views[k]
}

// hasBeenBuried reports whether a key ever had a tombstone.
func (r *running) hasBeenBuried(k event.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buried[k]
}

// acknowledge puts an event of an object on the simulated bus.
func (r *running) acknowledge(k event.Key, a event.Acked) {
	r.mu.Lock()
	r.bus[k] = a
	r.mu.Unlock()
	r.Settle(k, a)
}

// reconcile compares all events of a resource on the simulated bus.
func (r *running) reconcile(t *testing.T, gr schema.GroupResource) (reconcile.Comparison, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r.mu.Lock()
	bus := map[event.Key]event.Acked{}
	for k, a := range r.bus {
		if k.GroupResource() == gr {
			bus[k] = a
		}
	}
	r.mu.Unlock()
	return r.Reconcile(ctx, gr, maps.All(bus))
}

func (r *running) awaitSynced(t *testing.T, gr schema.GroupResource) {
	t.Helper()
	// The informers can sync before the discovery that started them is in effect.
	r.await(t, gr.String()+" syncs", func() bool { return r.compare[gr] > 0 && r.Discovered() })
}
