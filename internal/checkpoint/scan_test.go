package checkpoint

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

func ofResource(resource, name string) event.Key {
	return event.Key{Resource: resource, Namespace: "default", Name: name}
}

// TestCountsAreThoseOfAScan verifies that the counts equal those of a scan after any sequence of
// writes.
func TestCountsAreThoseOfAScan(t *testing.T) {
	c := newBench()
	check := func(step int) {
		t.Helper()
		size, resources, got := 0, 0, c.Epochs()
		for _, resource := range []string{"pods", "nodes"} {
			gr := schema.GroupResource{Resource: resource}
			epochs, highest := map[uint16]int{}, uint16(0)
			for _, a := range c.Entries(gr) {
				size++
				epochs[a.Epoch]++
				highest = max(highest, a.Epoch)
			}
			if len(epochs) > 0 {
				resources++
			}
			if got[gr] != highest {
				t.Fatalf("step %d: the epoch of %s is %d, want %d", step, resource, got[gr], highest)
			}
			for epoch, n := range epochs {
				if got, want := c.HoldsEpoch(gr, event.Acked{Epoch: epoch}), epoch > 0 && epoch == highest && n == 1; got != want {
					t.Fatalf("step %d: epoch %d of %s is alone: %v, want %v", step, epoch, resource, got, want)
				}
			}
		}
		if c.Len() != size || len(c.Resources()) != resources {
			t.Fatalf("step %d: %d entries, %d resources; want %d, %d", step, c.Len(), len(c.Resources()), size, resources)
		}
	}
	for step := range 600 {
		k := ofResource([]string{"pods", "nodes"}[step%2], strconv.Itoa(step*7%23))
		a := event.Acked{UID: uid, ResourceVersion: strconv.Itoa(step), Epoch: uint16(step / 5 % 6)}
		switch step % 6 {
		case 0, 1:
			a = event.Acked{}
		case 2:
			a.UID = "odd"
		}
		c.Put(k, a)
		check(step)
	}
	if _, err := c.Load(t.Context(), holds(map[event.Key]event.Acked{ofResource("pods", "a"): {UID: uid, ResourceVersion: "1", Epoch: 9}})); err != nil {
		t.Fatal(err)
	}
	check(600)
}

func filled(entries int) *bench {
	c := newBench()
	for n := range entries {
		c.Put(ofResource("r"+strconv.Itoa(n%100), "web-"+strconv.Itoa(n)), event.Acked{
			UID: "6f1e4c9a-1b7d-4e8f-9a3c-" + strconv.Itoa(100_000_000_000+n), ResourceVersion: strconv.Itoa(n + 1), Epoch: 1, Position: uint64(n + 1), Time: 1, Deleted: n%20 == 0,
		})
	}
	return c
}

// BenchmarkEntries iterates over one of 100 resources, with 100,000 entries in total.
func BenchmarkEntries(b *testing.B) {
	c := filled(100_000)
	for b.Loop() {
		for range c.Entries(schema.GroupResource{Resource: "r7"}) {
		}
	}
}

func BenchmarkEpoch(b *testing.B) {
	c := filled(100_000)
	for b.Loop() {
		c.Epoch()
	}
}

func BenchmarkResources(b *testing.B) {
	c := filled(100_000)
	for b.Loop() {
		c.Resources()
	}
}

// BenchmarkPurge purges 95 of 100 deletes.
func BenchmarkPurge(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		c := filled(2_000)
		for n := range 98_000 {
			c.Put(ofResource("r1", "live-"+strconv.Itoa(n)), event.Acked{UID: uid, ResourceVersion: "1", Epoch: 1})
		}
		r := Retention{
			Checkpoint: c.Checkpoint, After: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Bus: purgerFunc(func(event.Key, uint64) error { return nil }),
		}
		b.StartTimer()
		if n, err := r.Once(b.Context()); n != 95 || err != nil { // the last event of each epoch stays
			b.Fatal(n, err)
		}
	}
}

// BenchmarkPurgeOfManyEpochs purges 20,000 deletes, each with a different epoch.
func BenchmarkPurgeOfManyEpochs(b *testing.B) {
	const deletes = 20_000
	for b.Loop() {
		b.StopTimer()
		c := newBench()
		for n := range deletes {
			c.Put(key(strconv.Itoa(n)), event.Acked{UID: uid, ResourceVersion: "1", Epoch: uint16(n + 1), Time: 1, Deleted: true})
		}
		r := Retention{
			Checkpoint: c.Checkpoint, After: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Bus: purgerFunc(func(event.Key, uint64) error { return nil }),
		}
		b.StartTimer()
		if n, err := r.Once(b.Context()); n != deletes-1 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkRefresh reports the longest time that an acknowledgement waits during a load.
func BenchmarkRefresh(b *testing.B) {
	c := filled(100_000)
	bus := map[event.Key]event.Acked{}
	for _, gr := range c.Resources() {
		for k, a := range c.Entries(gr) {
			bus[k] = a
		}
	}
	var longest time.Duration
	for b.Loop() {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				begun := time.Now()
				c.Put(ofResource("r1", "web-1"), at(strconv.Itoa(n)))
				longest = max(longest, time.Since(begun))
				time.Sleep(100 * time.Microsecond)
			}
		}()
		if _, err := c.Load(b.Context(), holds(bus)); err != nil {
			b.Fatal(err)
		}
		close(stop)
		<-stopped
	}
	b.ReportMetric(float64(longest.Milliseconds()), "ms-longest-wait")
}
