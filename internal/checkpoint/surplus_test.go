package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
)

func inNamespace(namespace string, n int) event.Key {
	return event.Key{Resource: "pods", Namespace: namespace, Name: strconv.Itoa(n)}
}

// kept returns the names of the remaining deletes, by namespace.
func kept(c *bench) map[string][]int {
	names := map[string][]int{}
	for k, a := range c.Entries(pods) {
		if a.Deleted {
			n, _ := strconv.Atoi(k.Name)
			names[k.Namespace] = append(names[k.Namespace], n)
		}
	}
	for _, all := range names {
		slices.Sort(all)
	}
	return names
}

// values returns the metrics as "name value name value".
func values(t *testing.T, metrics prometheus.Gatherer) string {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		m := f.GetMetric()[0]
		all = append(all, fmt.Sprintf("%s %v", f.GetName(), m.GetGauge().GetValue()+m.GetCounter().GetValue()))
	}
	return strings.Join(all, " ")
}

func upTo(first, last int) (all []int) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// TestTooManyDeletes verifies that if one namespace deletes more objects than the limit allows, its
// own oldest deletes are purged and the deletes of other namespaces stay.
func TestTooManyDeletes(t *testing.T) {
	const now, limit = 100_000, 80
	for name, c := range map[string]struct {
		put  func(*bench)
		want map[string][]int
	}{
		"at the limit": {
			func(c *bench) {
				for n := range limit {
					c.Put(inNamespace("hot", n), deletedAt(uint32(1000+n), 1))
				}
			},
			map[string][]int{"hot": upTo(0, limit-1)},
		},
		"above it, an eighth is free again": {
			func(c *bench) {
				for n := range limit + 1 {
					c.Put(inNamespace("hot", n), deletedAt(uint32(1000+n), 1))
				}
			},
			map[string][]int{"hot": upTo(11, limit)},
		},
		"other namespaces keep theirs": {
			func(c *bench) {
				for n := range 200 {
					c.Put(inNamespace("hot", n), deletedAt(uint32(50_000+n), 1))
				}
				for n := range 10 {
					c.Put(inNamespace("quiet", n), deletedAt(uint32(40_000+n), 1)) // older
					c.Put(key(strconv.Itoa(n)), at("1"))
				}
			},
			map[string][]int{"hot": upTo(140, 199), "quiet": upTo(0, 9)},
		},
		"two of them share": {
			func(c *bench) {
				for n := range 200 {
					c.Put(inNamespace("a", n), deletedAt(uint32(50_000+n), 1))
					c.Put(inNamespace("b", n), deletedAt(uint32(40_000+n), 1))
				}
				c.Put(inNamespace("quiet", 0), deletedAt(10, 1))
			},
			map[string][]int{"a": upTo(166, 199), "b": upTo(166, 199), "quiet": {0}},
		},
		"not within five minutes": {
			func(c *bench) {
				for n := range 200 {
					c.Put(inNamespace("hot", n), deletedAt(uint32(now-300-20+n), 1)) // 21 of them are old enough
				}
			},
			map[string][]int{"hot": upTo(21, 199)},
		},
		"when is not known": {
			func(c *bench) {
				for n := range 200 {
					c.Put(inNamespace("hot", n), deletedAt(uint32(min(1, n%2)*1000), 1))
				}
			},
			map[string][]int{"hot": slices.DeleteFunc(upTo(0, 199), func(n int) bool { return n%2 == 1 })},
		},
		"foreign events may hide an unpublished delete": {
			func(c *bench) {
				for n := range 200 {
					a := deletedAt(uint32(1000+n), 1)
					a.Foreign = n%2 == 0
					c.Put(inNamespace("hot", n), a)
				}
			},
			map[string][]int{"hot": slices.DeleteFunc(upTo(0, 199), func(n int) bool { return n%2 == 1 && n < 60 })},
		},
		"unpacked entries too": {
			func(c *bench) {
				for n := range 200 {
					c.Put(inNamespace("hot", n), event.Acked{UID: "A", ResourceVersion: "x", Deleted: true, Time: 1000 * int64(1000+n), Position: 1})
				}
			},
			map[string][]int{"hot": upTo(130, 199)},
		},
		"live objects are no deletes": {
			func(c *bench) {
				for n := range 200 {
					c.Put(inNamespace("hot", n), event.Acked{UID: uid, ResourceVersion: "1", Time: 1, Position: 1})
				}
			},
			map[string][]int{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cp := newBench()
			c.put(cp)
			before := cp.Deletes()
			r := Retention{
				Checkpoint: cp.Checkpoint, After: now * time.Second, Max: limit, Now: func() time.Time { return time.Unix(now, 0) }, Log: slog.New(slog.DiscardHandler),
				Bus: purgerFunc(func(event.Key, uint64) error { return nil }),
			}
			metrics := prometheus.NewRegistry()
			r.Register(metrics)
			purged, err := r.Once(t.Context())
			got := kept(cp)
			if err != nil || !maps.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("%v are left, error %v; want %v", got, err, c.want)
			}
			if left := before - purged; cp.Deletes() != left {
				t.Errorf("%d deletes are counted, %d purged of %d", cp.Deletes(), purged, before)
			}
			if got, want := values(t, metrics), fmt.Sprintf("kuberelay_deletes_kept %d kuberelay_deletes_purged_early_total %d", before-purged, purged); got != want {
				t.Errorf("metrics are %s, want %s", got, want)
			}
		})
	}
}

// TestTiesOfTooManyDeletes verifies that no more deletes than necessary are purged if many have the
// same time.
func TestTiesOfTooManyDeletes(t *testing.T) {
	cp := newBench()
	for n := range 1000 {
		cp.Put(inNamespace("hot", n), deletedAt(uint32(1000+n/300), 1))
	}
	r := Retention{
		Checkpoint: cp.Checkpoint, After: 24 * time.Hour, Max: 800, Now: func() time.Time { return time.Unix(50_000, 0) }, Log: slog.New(slog.DiscardHandler),
		Bus: purgerFunc(func(event.Key, uint64) error { return nil }),
	}
	if purged, err := r.Once(t.Context()); purged != 300 || err != nil || cp.Deletes() != 700 {
		t.Errorf("%d are purged, error %v, %d left; want 700 left", purged, err, cp.Deletes())
	}
}

// TestDeletesAreCounted verifies that the count of deletes equals that of a scan, after any sequence
// of writes and after a load.
func TestDeletesAreCounted(t *testing.T) {
	c := newBench()
	for step := range 2000 {
		a := event.Acked{UID: uid, ResourceVersion: strconv.Itoa(step), Deleted: step%3 == 0}
		switch step % 7 {
		case 0:
			a = event.Acked{}
		case 1:
			a.UID = "odd"
		}
		c.Put(inNamespace("a", step*7%23), a)
		if got, want := c.Deletes(), len(kept(c)["a"]); got != want {
			t.Fatalf("step %d: %d deletes are counted, want %d", step, got, want)
		}
	}
	if _, err := c.Load(t.Context(), holds(map[event.Key]event.Acked{key("a"): deletedAt(1, 1), key("b"): at("1")})); err != nil || c.Deletes() != 1 {
		t.Errorf("%d deletes are counted after a load, want 1: %v", c.Deletes(), err)
	}
}

// TestTooManyDeletesArePurgedSoon verifies that Run does not wait for its interval of one hour while
// too many deletes are kept. A failing bus delays the purge and loses nothing.
func TestTooManyDeletesArePurgedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 800
		c := newBench()
		var up atomic.Bool
		var log strings.Builder
		r := Retention{
			Checkpoint: c.Checkpoint, After: 24 * time.Hour, Max: limit, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Bus: purgerFunc(func(event.Key, uint64) error {
				if !up.Load() {
					return errors.New("bus down")
				}
				return nil
			}),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		most := 0
		for second := range 1200 { // on the synctest clock
			for n := range 10 {
				c.Put(inNamespace("hot", 10*second+n), deletedAt(uint32(time.Now().Unix()), 1))
			}
			time.Sleep(time.Second)
			most = max(most, c.Deletes())
			if second == 500 {
				if got := c.Deletes(); got != 5010 {
					t.Errorf("%d deletes are left while the bus is down, want all 5010", got)
				}
				most = 0
				up.Store(true)
				time.Sleep(countInterval)
			}
		}
		cancel()
		<-ended
		if want := max(limit, 10*300) + 11*10; most > want {
			t.Errorf("up to %d deletes are kept, want at most %d: the limit or those of the last five minutes, plus those of ten seconds", most, want)
		}
		if got := strings.Count(log.String(), "too many deleted objects"); got != 1 {
			t.Errorf("%d warnings in twenty minutes, want 1", got)
		}
	})
}

func TestMaxDeletes(t *testing.T) {
	for limit, want := range map[int64]int{math.MaxInt64: 500_000, 240 << 20: 104_857, 1 << 20: 1000, 0: 1000} {
		if got := MaxDeletes(limit); got != want {
			t.Errorf("%d deletes for %d bytes, want %d", got, limit, want)
		}
	}
}

func TestFairShare(t *testing.T) {
	for _, c := range []struct {
		counts []int
		limit  int
		want   int
	}{
		{nil, 10, 10},
		{[]int{5}, 10, 5},
		{[]int{50}, 10, 10},
		{[]int{3, 100, 3}, 10, 4},
		{[]int{100, 100, 1}, 11, 5},
		{[]int{2, 2, 2}, 6, 2},
		{[]int{2, 2, 2}, 2, 0},
	} {
		if got := fairShare(c.counts, c.limit); got != c.want {
			t.Errorf("%v share %d: got %d, want %d", c.counts, c.limit, got, c.want)
		}
	}
}
