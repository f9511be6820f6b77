package workqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/kuberelay/kuberelay/internal/event"
)

func in(namespace string, n int) event.Key {
	return event.Key{Resource: "pods", Namespace: namespace, Name: fmt.Sprint(namespace, "-", n)}
}

// TestFlowsTakeTurns queues a thousand keys of one namespace, and verifies that the first key of
// any other flow waits for only one of them.
func TestFlowsTakeTurns(t *testing.T) {
	const hot, quiet = 1000, 50
	q := oneWorker()
	for n := range hot {
		q.Add(in("hot", n))
	}
	want := []string{"hot-0"}
	for n := range quiet {
		k := in(fmt.Sprint("quiet-", n), 0)
		switch n {
		case 0:
			k.Namespace = "hot"
			k.Resource = "secrets"
		case 1:
			k.Namespace = "hot"
			k.Group = "example.com"
		case 2:
			k.Namespace = "" // cluster-scoped
		}
		q.Add(k)
		want = append(want, k.Name)
	}
	q.Add(in("quiet-9", 1)) // second in its flow
	for n := 1; n < hot; n++ {
		want = append(want, in("hot", n).Name)
		if n == 1 {
			want = append(want, "quiet-9-1")
		}
	}
	if got := handedOut(t, q, len(want), nil); !slices.Equal(got, want) {
		t.Errorf("got %q", got[:quiet+10])
	}
}

// TestAFlowLeavesRoom verifies that a busy namespace uses only as much of a limit as it leaves
// free, so that a key of another namespace is handed out although no handler completes. Two busy
// namespaces use a third each.
func TestAFlowLeavesRoom(t *testing.T) {
	const limit, size = 60, 10
	for name, of := range map[string]Limit{
		"keys":  {Keys: limit},
		"bytes": {Keys: 100 * limit, Bytes: limit * size},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New(Config{Workers: 1, MaxInFlight: of, MaxLowPriorityInFlight: of, BaseDelay: time.Second, MaxDelay: time.Second})
				r := &recorder{}
				start(t, q, func(ctx context.Context, k event.Key, done func(Result)) {
					q.Hold(k, size)
					r.handle(ctx, k, done)
				})
				const keys = 10 * limit
				for n := range keys {
					q.Add(in("hot", n))
				}
				synctest.Wait()
				if got := r.handed(); got != limit/2 {
					t.Fatalf("%d keys of the busy namespace are handed out, want half of %d", got, limit)
				}
				for n := range keys {
					q.Add(in("other", n))
				}
				synctest.Wait()
				if got := r.handed(); got != limit/2+limit/4 { // as much as is free now
					t.Fatalf("%d keys are handed out, want a quarter of %d for a second namespace", got-limit/2, limit)
				}
				held := map[string]int{}
				for range 4 * limit {
					k := r.order[0]
					r.order = r.order[1:]
					r.finish(k, Result{})
					synctest.Wait()
					clear(held)
					for k := range r.open {
						held[k.Namespace]++
					}
					if held["hot"]+held["other"] > limit*3/4 || held["hot"]+held["other"] < limit/2 {
						t.Fatalf("%v are held of %d", held, limit)
					}
				}
				if held["hot"] < limit/4 || held["other"] < limit/4 {
					t.Errorf("%v are held of %d, want about a third for each namespace", held, limit)
				}
				q.Add(in("quiet", 0))
				synctest.Wait()
				if got := r.order[len(r.order)-1]; got != in("quiet", 0) {
					t.Errorf("%v is handed out, want the key of a namespace that holds nothing", got)
				}
				r.finishAll(t, len(r.open)+q.Len())
			})
		})
	}
}

// TestBackgroundWorkDoesNotUseTheRoomThatAFlowLeaves verifies that low-priority keys don't use the
// room that a busy namespace leaves free. While the namespace holds its share and its keys wait,
// one low-priority key is handed out for every seven of its keys, and no more.
func TestBackgroundWorkDoesNotUseTheRoomThatAFlowLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 64
		q, r := limited(1, limit, limit), &recorder{}
		for n := range limit {
			q.Add(in("hot", n))
			q.AddLowPriority(key(n))
		}
		start(t, q, r.handle)
		synctest.Wait()
		low := 0
		for _, k := range r.order {
			if k.Namespace != "hot" {
				low++
			}
		}
		if hot := len(r.order) - low; hot < limit*2/5 || low != hot/maxStreak {
			t.Errorf("%d changes and %d low-priority keys are handed out of %d", hot, low, limit)
		}
		r.finishAll(t, 2*limit)
	})
}

// TestAFlowUsesRoomThatOthersFree verifies that a flow that held its share uses the room that completions
// of other keys free, although no handler completes one of its own keys. A slow publish otherwise blocks
// the other keys of its flow, and all low-priority keys.
func TestAFlowUsesRoomThatOthersFree(t *testing.T) {
	const limit, others = 16, 14
	for name, add := range map[string]func(q *Queue, n int){
		"of other flows":       func(q *Queue, n int) { q.Add(change(n)) },
		"of low-priority keys": func(q *Queue, n int) { q.AddLowPriority(change(n)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, r := limited(1, limit, limit), &recorder{}
				start(t, q, r.handle)
				for n := range others {
					add(q, n)
				}
				synctest.Wait()
				for n := range limit {
					q.Add(in("slow", n))
				}
				synctest.Wait()
				if got := r.handed(); got != others+1 {
					t.Fatalf("%d keys are handed out, want one of the flow", got)
				}
				for n := range others {
					r.finish(change(n), Result{})
					synctest.Wait() // otherwise the flow may get one key fewer: it continues only below three quarters of its share
				}
				if got := r.handed() - others; got != limit/2 {
					t.Errorf("%d keys of the flow are handed out, want half of %d", got, limit)
				}
				r.finishAll(t, limit)
			})
		})
	}
}

// TestFlows verifies for random limits, sizes and orders of completion that each key is handed out
// once and in the order of its flow. No flow holds more than its share, and nothing is left in
// memory.
func TestFlows(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := Limit{Keys: 1 + random.IntN(20), Bytes: int64(random.IntN(3) * random.IntN(200))}
		q := newPriorityQueue(limit, Limit{Keys: 1 + random.IntN(5)}, 0)
		pushed, popped := map[flowID]int{}, map[flowID]int{}
		var open []item
		for step := range 2000 {
			switch op := random.IntN(8); {
			case op < 4 && step < 1500:
				k := in(fmt.Sprint(random.IntN(1+random.IntN(30))), 0)
				k.Name = fmt.Sprint(pushed[flowOf(k)])
				pushed[flowOf(k)]++
				q.expect(unique.Make(k), normal)
				q.Push(unique.Make(k))
			case op < 6 && q.ready():
				free, freeBytes := q.all.keys.free(), q.all.bytes.free()
				q.await()
				k := q.Pop()
				f, id := q.keys[k].flow, flowOf(k.Value())
				if k.Value().Name != fmt.Sprint(popped[id]) {
					t.Fatalf("seed %d: %v is handed out, want number %d", seed, k.Value(), popped[id])
				}
				popped[id]++
				if f.keys > 1 && (f.keys > free || limit.Bytes > 0 && f.bytes > freeBytes) {
					t.Fatalf("seed %d: a flow holds %d keys and %d bytes with %d and %d free", seed, f.keys, f.bytes, free, freeBytes)
				}
				open = append(open, k)
				q.holdBytes(k, uint32(random.IntN(100)))
			case len(open) > 0:
				at := random.IntN(len(open))
				complete(q, open[at])
				open = slices.Delete(open, at, at+1)
				for id, f := range q.flows.byID {
					if q.flows.full.len() <= maxChecks && f.queued.len() > 0 && !f.awaits && (f.keys == 0 || !q.all.exceedsShare(f, 3)) {
						t.Fatalf("seed %d: %v doesn't await its turn with %d of %d keys", seed, id, f.keys, q.all.keys.limit)
					}
				}
			}
		}
		for len(open) > 0 || q.ready() {
			for q.ready() {
				q.await()
				k := q.Pop()
				popped[flowOf(k.Value())]++
				open = append(open, k)
			}
			complete(q, open[0])
			open = open[1:]
		}
		for id, n := range pushed {
			if popped[id] != n {
				t.Fatalf("seed %d: %d of %d keys of %v were handed out", seed, popped[id], n, id)
			}
		}
		if len(q.flows.byID) != 0 || q.flows.len() != 0 || q.flows.first != nil || q.flows.full.len() > 0 || q.all.keys.used != 0 || q.all.bytes.used != 0 {
			t.Fatalf("seed %d: something is left: %+v", seed, q.flows)
		}
	}
}

// TestManyFlowsLeaveNoMemory verifies that the maps are replaced after many flows, because a map
// never shrinks.
func TestManyFlowsLeaveNoMemory(t *testing.T) {
	q := newPriorityQueue(Limit{Keys: 1}, Limit{Keys: 1}, 0)
	for n := range 5000 {
		k := unique.Make(in(fmt.Sprint(n), 0))
		q.expect(k, normal)
		q.Push(k)
	}
	for q.ready() {
		q.await()
		complete(q, q.Pop())
	}
	if q.flows.large || q.large {
		t.Error("the maps of many flows and keys are kept")
	}
}
