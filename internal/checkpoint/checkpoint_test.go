package checkpoint

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// bench is the checkpoint of a new term.
type bench struct {
	*Checkpoint
	*ledger.Term
}

func newBench() *bench {
	t := ledger.New().NewTerm()
	return &bench{New(t), t}
}

const uid = "6f1e4c9a-1b7d-4e8f-9a3c-0123456789ab"

func key(name string) event.Key { return event.Key{Resource: "pods", Namespace: "default", Name: name} }

func at(version string) event.Acked { return event.Acked{UID: uid, ResourceVersion: version} }

// sourceFunc is a fake Source.
type sourceFunc func(ctx context.Context, yield func(event.Key, event.Acked) error) error

var _ Source = sourceFunc(nil)

func (f sourceFunc) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	return f(ctx, yield)
}

// holds returns a Source with these entries.
func holds(entries map[event.Key]event.Acked) sourceFunc {
	return func(_ context.Context, yield func(event.Key, event.Acked) error) error {
		for k, a := range entries {
			if err := yield(k, a); err != nil {
				return err
			}
		}
		return nil
	}
}

// content returns the entries of pods as "a.1 b.2".
func content(c *bench) string {
	var all []string
	for k, a := range c.Entries(schema.GroupResource{Resource: "pods"}) {
		all = append(all, k.Name+"."+a.ResourceVersion)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestPutAndGet(t *testing.T) {
	c := newBench()
	c.Put(key("a"), at("1"))
	c.Put(key("a"), at("2"))
	c.Put(key("b"), at("3"))
	c.Put(key("b"), event.Acked{})
	c.Put(key("never"), event.Acked{})
	if got, want := c.Get(key("a")), at("2"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := c.Get(key("b")); got != (event.Acked{}) {
		t.Errorf("got %+v for a removed entry, want nothing", got)
	}
	if c.Len() != 1 {
		t.Errorf("len is %d, want 1", c.Len())
	}
}

func TestResourcesAndTheirEntries(t *testing.T) {
	c := newBench()
	deployment := event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: "a"}
	foreign := event.Key{Group: "example.com", Resource: "pods", Namespace: "default", Name: "a"}
	for _, k := range []event.Key{key("a"), key("b"), deployment, foreign} {
		c.Put(k, at("1"))
	}
	if got, want := content(c), "a.1 b.1"; got != want {
		t.Errorf("got %q of pods, want %q", got, want)
	}
	var got []string
	for _, gr := range c.Resources() {
		got = append(got, gr.String())
	}
	slices.Sort(got)
	if want := []string{"deployments.apps", "pods", "pods.example.com"}; !slices.Equal(got, want) {
		t.Errorf("got resources %v, want %v", got, want)
	}
}

func TestEpochIsTheHighest(t *testing.T) {
	c := newBench()
	if got := c.Epoch(); got != 0 {
		t.Errorf("got %d without entries, want 0", got)
	}
	c.Put(key("a"), event.Acked{UID: uid, ResourceVersion: "1", Epoch: 2})
	c.Put(key("b"), event.Acked{UID: uid, ResourceVersion: "1", Epoch: 1})
	c.Put(key("odd"), event.Acked{UID: "A", ResourceVersion: "1", Epoch: 3, Deleted: true})
	if got := c.Epoch(); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
}

// TestLoad has a case for each change of an entry during a load. A Put during the load represents an
// acknowledgement, so it is at least as new as the loaded entry.
func TestLoad(t *testing.T) {
	failure := errors.New("connection lost")
	for name, c := range map[string]struct {
		before map[event.Key]event.Acked
		bus    map[event.Key]event.Acked
		during func(*bench) // called after the whole bus has been read
		err    error
		want   string
	}{
		"first":                     {nil, map[event.Key]event.Acked{key("a"): at("1"), key("b"): at("2")}, nil, nil, "a.1 b.2"},
		"the bus is empty":          {map[event.Key]event.Acked{key("a"): at("1")}, nil, nil, nil, ""},
		"the bus has more":          {map[event.Key]event.Acked{key("a"): at("1")}, map[event.Key]event.Acked{key("a"): at("1"), key("b"): at("2")}, nil, nil, "a.1 b.2"},
		"the bus has lost one":      {map[event.Key]event.Acked{key("a"): at("1"), key("b"): at("2")}, map[event.Key]event.Acked{key("a"): at("1")}, nil, nil, "a.1"},
		"the bus has another state": {map[event.Key]event.Acked{key("a"): at("3")}, map[event.Key]event.Acked{key("a"): at("2")}, nil, nil, "a.2"},
		"written meanwhile":         {map[event.Key]event.Acked{key("a"): at("1")}, map[event.Key]event.Acked{key("a"): at("1")}, func(c *bench) { c.Put(key("a"), at("5")) }, nil, "a.5"},
		"created meanwhile":         {nil, nil, func(c *bench) { c.Put(key("a"), at("5")) }, nil, "a.5"},
		"removed meanwhile":         {map[event.Key]event.Acked{key("a"): at("1")}, map[event.Key]event.Acked{key("a"): at("1")}, func(c *bench) { c.Put(key("a"), event.Acked{}) }, nil, ""},
		"written and removed":       {nil, map[event.Key]event.Acked{key("a"): at("1")}, func(c *bench) { c.Put(key("a"), at("2")); c.Put(key("a"), event.Acked{}) }, nil, ""},
		"removed and written":       {nil, map[event.Key]event.Acked{key("a"): at("1")}, func(c *bench) { c.Put(key("a"), event.Acked{}); c.Put(key("a"), at("2")) }, nil, "a.2"},
		"written with the same":     {map[event.Key]event.Acked{key("a"): at("1")}, nil, func(c *bench) { c.Put(key("a"), at("1")) }, nil, "a.1"},

		"failed":                    {map[event.Key]event.Acked{key("a"): at("1")}, map[event.Key]event.Acked{key("a"): at("9"), key("b"): at("9")}, nil, failure, "a.1"},
		"failed, written meanwhile": {map[event.Key]event.Acked{key("a"): at("1")}, map[event.Key]event.Acked{key("b"): at("9")}, func(c *bench) { c.Put(key("a"), at("2")) }, failure, "a.2"},
	} {
		t.Run(name, func(t *testing.T) {
			cp := newBench()
			for k, a := range c.before {
				cp.Put(k, a)
			}
			_, err := cp.Load(t.Context(), sourceFunc(func(ctx context.Context, yield func(event.Key, event.Acked) error) error {
				if err := holds(c.bus)(ctx, yield); err != nil {
					return err
				}
				if c.during != nil {
					c.during(cp)
				}
				return c.err
			}))
			if !errors.Is(err, c.err) {
				t.Errorf("got error %v, want %v", err, c.err)
			}
			if got := content(cp); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestLost verifies that a load counts the objects whose last event the bus has lost. The missing
// event of a deleted object does not count.
func TestLost(t *testing.T) {
	c := newBench()
	at := func(version string) event.Acked {
		a := at(version)
		a.Position, _ = strconv.ParseUint(version, 10, 64)
		return a
	}
	deleted := at("3")
	deleted.Deleted = true
	c.Put(key("kept"), at("1"))
	c.Put(key("lost"), at("2"))
	c.Put(key("deleted"), deleted)
	c.Put(key("went back"), at("9"))
	c.Put(key("live again"), deleted)
	for _, want := range []int{3, 0} {
		got, err := c.Load(t.Context(), sourceFunc(func(_ context.Context, yield func(event.Key, event.Acked) error) error {
			c.Put(key("meanwhile"), at("4"))
			return errors.Join(yield(key("kept"), at("1")), yield(key("went back"), at("8")), yield(key("live again"), at("2")))
		}))
		if got != want || err != nil {
			t.Errorf("got %d, %v; want %d", got, err, want)
		}
	}
	c.Put(key("kept"), event.Acked{}) // a refused publish shows another loss
	if got := c.LostTotal(); got != 4 {
		t.Errorf("%d in all, want 4", got)
	}
	if c.Age() < 0 || c.Age() > time.Minute {
		t.Errorf("age is %s, want that of a fresh load", c.Age())
	}
}

// TestLoadOfAnEarlierState verifies a load that a partitioned leader of the bus serves from an
// earlier state, after the forwarder has published to the other servers. The event counts as lost
// until the next load shows it.
func TestLoadOfAnEarlierState(t *testing.T) {
	c := newBench()
	before, after := at("1"), at("2")
	before.Position, after.Position = 1, 2
	for n, of := range []struct {
		shown event.Acked
		lost  int
	}{{before, 0}, {before, 1}, {after, 0}} {
		got, err := c.Load(t.Context(), sourceFunc(func(_ context.Context, yield func(event.Key, event.Acked) error) error {
			return yield(key("a"), of.shown)
		}))
		if has := c.Get(key("a")); got != of.lost || err != nil || has.Position != of.shown.Position {
			t.Errorf("load %d: lost %d, error %v, the entry is %+v", n+1, got, err, has)
		}
		if n == 0 {
			c.Put(key("a"), after) // acknowledged
		}
	}
	if got := c.LostTotal(); got != 1 {
		t.Errorf("%d losses in total, want 1", got)
	}
}

// TestLoadTakesTheLastOfAKey verifies that a load keeps the last event if the source yields an
// object twice. This can happen if the object is written during the load.
func TestLoadTakesTheLastOfAKey(t *testing.T) {
	c := newBench()
	_, err := c.Load(t.Context(), sourceFunc(func(_ context.Context, yield func(event.Key, event.Acked) error) error {
		return errors.Join(yield(key("a"), at("1")), yield(key("a"), at("2")))
	}))
	if got := content(c); got != "a.2" || err != nil {
		t.Errorf("got %q, error %v; want a.2", got, err)
	}
}

// TestLoadIsNotSeenBeforeItsEnd verifies that readers see the old entries until a load ends, and
// that only one load runs at a time.
func TestLoadIsNotSeenBeforeItsEnd(t *testing.T) {
	c := newBench()
	c.Put(key("a"), at("1"))
	var both sync.WaitGroup
	running, loads := false, 0
	source := sourceFunc(func(_ context.Context, yield func(event.Key, event.Acked) error) error {
		if running {
			t.Error("two concurrent loads")
		}
		running = true
		defer func() { running = false }()
		before := content(c)
		loads++
		err := yield(key("b"), event.Acked{UID: uid, ResourceVersion: strconv.Itoa(loads), Position: uint64(10 - loads)}) // the bus lost its latest events
		if got := content(c); got != before {
			t.Errorf("got %q during the load, want %q as before", got, before)
		}
		return err
	})
	for range 2 {
		both.Go(func() {
			if _, err := c.Load(t.Context(), source); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if got := content(c); got != "b.2" {
		t.Errorf("got %q, want b.2", got)
	}
}

// TestConcurrentUse lets the race detector find unsynchronized access.
func TestConcurrentUse(t *testing.T) {
	c := newBench()
	bus := map[event.Key]event.Acked{}
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		bus[key(name)] = at("1")
		all.Go(func() {
			for range 200 {
				c.Put(key(name), at("1"))
				if got := c.Get(key(name)); got != at("1") {
					t.Errorf("%s: got %+v, want the entry that was put", name, got)
				}
			}
		})
	}
	all.Go(func() {
		for range 50 {
			if _, err := c.Load(t.Context(), holds(bus)); err != nil {
				t.Error(err)
			}
			c.Epoch()
			c.Len()
			c.Resources()
		}
	})
	all.Wait()
}
