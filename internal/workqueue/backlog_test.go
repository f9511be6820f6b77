package workqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	kubequeue "k8s.io/client-go/util/workqueue"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestBacklog: what goes in comes out once, in its order, and what is taken out does not,
// as in a slice.
func TestBacklog(t *testing.T) {
	b := newBacklog()
	var want []event.Key
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		k := key(random.IntN(1500))
		at := slices.Index(want, k)
		switch op := random.IntN(8); {
		case op < 5 && len(want) < 1300:
			if b.push(k) != (at < 0) {
				t.Fatalf("push of a key at %d", at)
			}
			if at < 0 {
				want = append(want, k)
			}
		case op == 5:
			if b.remove(k) != (at >= 0) {
				t.Fatalf("remove of a key at %d", at)
			}
			if at >= 0 {
				want = slices.Delete(want, at, at+1)
			}
		default:
			if len(want) == 0 {
				continue
			}
			if got := b.pop(); got != want[0] {
				t.Fatalf("popped %v, want %v", got, want[0])
			}
			want = want[1:]
		}
		if b.len() != len(want) {
			t.Fatalf("%d keys, want %d", b.len(), len(want))
		}
	}
	for _, k := range want {
		if got := b.pop(); got != k {
			t.Fatalf("got %v, want %v", got, k)
		}
	}
	if b.keys != nil || b.numbers != nil {
		t.Error("an empty backlog keeps memory")
	}
}

// TestKeysOfOneHash are two keys all the same: none is lost.
func TestKeysOfOneHash(t *testing.T) {
	b := newBacklog()
	b.hash = func(k event.Key) uint64 { return uint64(len(k.Name)) }
	want := map[event.Key]bool{}
	for n := range 2000 {
		b.push(key(n))
		want[key(n)] = true
	}
	for n := range 50 { // some of them cannot be found
		b.remove(key(7 * n))
	}
	for n := range 50 {
		b.push(key(7 * n))
	}
	for b.len() > 0 {
		delete(want, b.pop())
	}
	if len(want) > 0 {
		t.Errorf("%d keys are lost", len(want))
	}
}

// TestAnEmptySlotTakesNoMemory for ever: neither what was popped, nor what changed in a
// pause and is pushed again by every resync.
func TestAnEmptySlotTakesNoMemory(t *testing.T) {
	b := newBacklog()
	for range 100 {
		for n := range 2000 {
			b.push(key(n))
		}
		for n := range 1990 {
			b.remove(key(n))
		}
	}
	if slots := len(b.keys) * pieceSize; slots > 3*2000+2*pieceSize {
		t.Errorf("%d slots for %d keys", slots, b.len())
	}
	for n := range 2000 {
		b.push(key(n))
	}
	for pieces := b.keys; len(b.keys) > 1; {
		if b.pop(); len(b.keys) < len(pieces) && pieces[0] != nil {
			t.Fatal("a piece that was popped is kept")
		}
	}
}

// gauge is a depth metric, and gives no other.
type gauge struct {
	mu sync.Mutex
	n  int
}

var _ kubequeue.MetricsProvider = (*gauge)(nil)

func (g *gauge) NewDepthMetric(string) kubequeue.GaugeMetric                         { return g }
func (g *gauge) NewAddsMetric(string) kubequeue.CounterMetric                        { return none{} }
func (g *gauge) NewLatencyMetric(string) kubequeue.HistogramMetric                   { return none{} }
func (g *gauge) NewWorkDurationMetric(string) kubequeue.HistogramMetric              { return none{} }
func (g *gauge) NewUnfinishedWorkSecondsMetric(string) kubequeue.SettableGaugeMetric { return none{} }
func (g *gauge) NewLongestRunningProcessorSecondsMetric(string) kubequeue.SettableGaugeMetric {
	return none{}
}
func (g *gauge) NewRetriesMetric(string) kubequeue.CounterMetric { return none{} }

type none struct{ noGauge }

func (none) Observe(float64) {}
func (none) Set(float64)     {}

func (g *gauge) Inc() { g.add(1) }
func (g *gauge) Dec() { g.add(-1) }
func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += n
}

// TestMostOfAFirstSyncIsInTheBacklog until it is nearly its turn; in its order, and what
// changes meanwhile goes before it, once.
func TestMostOfAFirstSyncIsInTheBacklog(t *testing.T) {
	const keys = 5000
	depth := &gauge{}
	q := New(Config{Workers: 1, MaxInFlight: 1, MaxBehind: 1, BaseDelay: time.Second, MaxDelay: time.Second, MetricsProvider: depth})
	for n := range keys {
		q.AddBehind(key(n))
	}
	for n := range keys {
		q.AddBehind(key(n)) // is there
	}
	q.Add(key(keys - 1))
	q.Add(key(0))
	want := []string{key(keys - 1).Name, key(0).Name}
	for n := range keys - 2 {
		want = append(want, key(n+1).Name)
	}
	var got []string
	handedOut(t, q, keys, func(name string) {
		got = append(got, name)
		in, left := q.queue.Len(), keys-len(got)
		if in > 300 || q.Len() != left || depth.n != left {
			t.Errorf("%d keys wait, %d of them in the queue, and the metric says %d; want %d", q.Len(), in, depth.n, left)
		}
	})
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestWhatCanWaitStaysInTheBacklogInAPause, where a key takes less than one that is parked;
// one that changes is parked, and after the pause goes first.
func TestWhatCanWaitStaysInTheBacklogInAPause(t *testing.T) {
	const keys = 2000
	for _, changes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, r := testQueue(), &recorder{}
			start(t, q, r.handle)
			q.Pause(func(event.Key) bool { return false })
			if changes {
				q.Add(key(keys - 1))
				q.Add(key(keys - 2))
			}
			synctest.Wait()
			for n := range keys {
				q.AddBehind(key(n))
			}
			if changes {
				q.Add(key(keys - 2))
			}
			synctest.Wait()
			parked := 0
			if changes {
				parked = 2
			}
			if r.handed() != 0 || q.queue.Len() != 0 || q.Len() != keys-parked || q.Delayed() != parked {
				t.Errorf("%d were handed out, %d wait, %d of them in the queue, and %d are parked", r.handed(), q.Len(), q.queue.Len(), q.Delayed())
			}
			q.Resume()
			drained := make(chan error, 1)
			go func() { drained <- q.Drain(t.Context()) }()
			r.finishAll(t, keys)
			if err := <-drained; err != nil || len(r.order) != keys {
				t.Errorf("%d keys were handed out: %v", len(r.order), err)
			}
		})
	}
}

// TestManyThatCanWaitGoOver to what has changed, and the others follow all the same, and
// whatever comes then after them.
func TestManyThatCanWaitGoOver(t *testing.T) {
	const keys = 1000
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		for n := range keys {
			q.AddBehind(key(n))
		}
		for n := range nearTurn {
			q.Add(key(n))
		}
		q.AddBehind(key(keys))
		start(t, q, r.handle)
		r.finishAll(t, keys+1)
		if at := slices.Index(r.order, key(keys)); at < keys-4 { // there are four workers
			t.Errorf("the last is handed out at %d", at)
		}
	})
}

// TestDrainRefusesKeys and pauses, also while the backlog is handed out.
func TestDrainRefusesKeys(t *testing.T) {
	const keys = 1000
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: 1, MaxBehind: 1, BaseDelay: time.Second, MaxDelay: time.Second}), &recorder{}
		for n := range keys {
			q.AddBehind(key(n))
		}
		start(t, q, r.handle)
		drained := make(chan error, 1)
		go func() { drained <- q.Drain(t.Context()) }()
		synctest.Wait()
		q.Pause(func(event.Key) bool { return false })
		q.Add(key(keys))
		q.AddBehind(key(keys + 1))
		r.finishAll(t, keys)
		if err := <-drained; err != nil || len(r.order) != keys {
			t.Errorf("%d keys were handed out: %v", len(r.order), err)
		}
	})
}

// TestDrainEmptiesTheBacklog, of a queue that has to wait for completions.
func TestDrainEmptiesTheBacklog(t *testing.T) {
	q := testQueue()
	const keys = 2000
	for n := range keys {
		q.AddBehind(key(n))
	}
	var mu sync.Mutex
	handed := map[event.Key]int{}
	stop := start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
		mu.Lock()
		handed[k]++
		mu.Unlock()
		go done(Result{})
	})
	defer stop()
	if err := q.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(handed) != keys || q.Len() != 0 {
		t.Errorf("%d keys were handed out, %d are left", len(handed), q.Len())
	}
}

// TestTheBacklogIsNotForgotten: whatever goes over to what has changed, fails or comes again
// while others are added, the last one is handed out without another Add.
func TestTheBacklogIsNotForgotten(t *testing.T) {
	const keys, from = 3000, 4
	for round := range 3 {
		q := New(Config{Workers: 4, MaxInFlight: 64, MaxBehind: 16, BaseDelay: time.Microsecond, MaxDelay: time.Microsecond})
		var mu sync.Mutex
		handed := map[event.Key]int{}
		all := make(chan struct{})
		stop := start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
			mu.Lock()
			defer mu.Unlock()
			handed[k]++
			if len(handed) == from*keys && handed[k] == 1 {
				close(all)
			}
			switch {
			case handed[k] == 1 && len(handed)%7 == 0:
				go done(Result{Err: fmt.Errorf("round %d", round)})
			case handed[k] == 1 && len(handed)%11 == 0:
				go done(Result{Again: true})
			default:
				go done(Result{})
			}
		})
		var adding sync.WaitGroup
		for g := range from {
			adding.Go(func() {
				for n := range keys {
					q.AddBehind(key(g*keys + n))
					if n%5 == 0 {
						q.Add(key(g*keys + n))
					}
				}
			})
		}
		adding.Wait()
		<-all
		stop()
	}
}
