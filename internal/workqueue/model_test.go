package workqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	kubequeue "k8s.io/client-go/util/workqueue"

	"github.com/kuberelay/kuberelay/internal/event"
)

// model calls a queue from several goroutines, and records which states the queue owes to a handler.
type model struct {
	q      *Queue
	mu     sync.Mutex
	random *rand.Rand
	keys   []modelKey
	drains bool // Drain may have begun
	calm   bool // handlers don't fail anymore
	wrong  string
}

type modelKey struct {
	state   int  // number of the state that was added last
	owed    int  // number of the state that a handler must see
	seen    int  // number of the state that a handler saw last
	handled bool // a handler holds the key
	times   int  // number of times that a handler got the key
	changed bool // by an Add, since a handler got the key
	failed  bool // during the drain, so the queue may keep the key
}

// nap lets other goroutines run for a random time on the synctest clock.
func (m *model) nap() { time.Sleep(m.upTo(20) * time.Microsecond) }

func (m *model) upTo(n int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.random.IntN(n))
}

func (m *model) key(n int) event.Key {
	k := key(n)
	k.Namespace = fmt.Sprint(n % 3)
	return k
}

// owe records a new state of a key, and calls the function that reports it to the queue. It records that
// the queue owes this state to a handler if the function returns true or the drain has not begun.
func (m *model) owe(n int, report func() bool) {
	m.mu.Lock()
	m.keys[n].state++
	state := m.keys[n].state
	m.mu.Unlock()
	also := report()
	m.mu.Lock()
	defer m.mu.Unlock()
	if also || !m.drains {
		m.keys[n].owed = max(m.keys[n].owed, state)
	}
}

// add is Add. It reports whether the queue accepted the key.
func (m *model) add(n int) bool {
	m.mu.Lock()
	times := m.keys[n].times
	m.mu.Unlock()
	handle := unique.Make(m.key(n))
	ok := m.q.priorities.add(handle)
	if ok {
		m.nap()
		m.q.queue.Add(handle)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[n].changed = m.keys[n].changed || ok && m.keys[n].times == times
	return ok
}

// addLow is AddLowPriority. It reports whether the caller added the key to client-go's queue.
func (m *model) addLow(n int) bool {
	handle := unique.Make(m.key(n))
	ok := m.q.priorities.addLow(handle)
	if ok {
		m.nap()
		m.q.queue.Add(handle)
	}
	return ok
}

// find calls the functions that report on the queue.
func (m *model) find(n int) {
	if m.q.Len() < 0 || m.q.Delayed() < 0 || m.q.InFlight() < 0 {
		m.fail("a count is negative")
	}
	if added, waiting := m.q.Background(); waiting < 0 || waiting > added {
		m.fail("%d low-priority keys wait of %d", waiting, added)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, _ := m.q.Find(m.key(n)); at == QueuedLowPriority && m.keys[n].changed {
		m.wrong = "a changed key has low priority"
	}
	if wrong := inconsistency(m.q.priorities); wrong != "" {
		m.wrong = wrong
	}
}

// act calls the queue at random.
func (m *model) act() {
	for range 150 {
		n := int(m.upTo(len(m.keys)))
		if m.upTo(2) == 0 {
			n %= 4 // keys that change all the time
		}
		switch m.upTo(20) {
		case 0:
			m.q.Pause(func(k event.Key) bool { m.nap(); return k.Namespace == "0" })
		case 1, 2:
			m.q.Resume()
		case 3:
			m.q.RetryNow()
		case 4:
			m.find(n)
		case 5, 6, 7, 8, 9:
			m.owe(n, func() bool { return m.add(n) })
			m.find(n)
		default:
			m.owe(n, func() bool { return m.addLow(n) })
			m.find(n)
		}
		m.nap()
	}
}

func (m *model) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = fmt.Sprintf(format, args...)
}

func (m *model) handle(_ context.Context, k event.Key, done func(Result)) {
	var n int
	fmt.Sscan(k.Name, &n)
	m.mu.Lock()
	s := &m.keys[n]
	if s.handled {
		m.wrong = "two handlers hold a key"
	}
	s.handled, s.changed, s.seen, s.times = true, false, s.state, s.times+1
	m.mu.Unlock()
	finish := func() {
		m.nap()
		m.q.Hold(k, int(m.upTo(1000)))
		m.nap()
		result := Result{Again: m.upTo(8) == 0}
		m.mu.Lock()
		if !m.calm && m.random.IntN(5) == 0 {
			result.Err = errors.New("refused")
		}
		m.mu.Unlock()
		report := func() {
			m.mu.Lock()
			s.handled = false
			m.mu.Unlock()
			done(result)
		}
		switch {
		case result.Err != nil:
			m.owe(n, func() bool { report(); return false })
			m.mu.Lock()
			s.failed = m.drains
			m.mu.Unlock()
		case result.Again:
			m.owe(n, func() bool { report(); return true })
		default:
			report()
		}
	}
	if m.upTo(2) == 0 {
		finish()
	} else {
		go finish()
	}
}

// napping is client-go's queue with a random pause around each call, so that other goroutines run.
type napping struct {
	kubequeue.TypedRateLimitingInterface[item]
	nap func()
}

func (n napping) Add(key item) {
	n.nap()
	n.TypedRateLimitingInterface.Add(key)
	n.nap()
}

func (n napping) AddRateLimited(key item) {
	n.nap()
	n.TypedRateLimitingInterface.AddRateLimited(key)
	n.nap()
}

func (n napping) Get() (item, bool) {
	n.nap()
	defer n.nap()
	return n.TypedRateLimitingInterface.Get()
}

func (n napping) Done(key item) {
	n.nap()
	n.TypedRateLimitingInterface.Done(key)
	n.nap()
}

func (n napping) ShuttingDown() bool {
	defer n.nap()
	return n.TypedRateLimitingInterface.ShuttingDown()
}

// TestModel calls the queue from several goroutines at once, in an order that depends on the seed. It
// verifies that at most one handler holds a key, that each key is handed out after it was added, had a
// further step or failed, that a changed key has no low priority, that the parts of the state agree, that
// a drain ends, and that the counts return to 0.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testModel(t, seed) }) })
	}
}

func testModel(t *testing.T, seed uint64) {
	random, depth := rand.New(rand.NewPCG(seed, 1)), &gauge{}
	q := New(Config{
		Workers: 1 + random.IntN(4), MaxInFlight: Limit{Keys: 1 + random.IntN(20), Bytes: int64(random.IntN(2) * 3000)},
		MaxLowPriorityInFlight: Limit{Keys: 1 + random.IntN(10), Bytes: int64(random.IntN(2) * 2000)}, MaxLowPriorityDelay: time.Duration(random.IntN(2)) * time.Millisecond,
		BaseDelay: []time.Duration{time.Millisecond, time.Minute}[random.IntN(2)], MaxDelay: time.Minute, MetricsProvider: depth,
	})
	m := &model{q: q, random: random, keys: make([]modelKey, maxStaged+random.IntN(100))}
	q.queue = napping{q.queue, m.nap}
	if seed%2 == 0 { // the keys of a first sync
		for n := range m.keys {
			m.owe(n, func() bool { return m.addLow(n) })
		}
	}
	stop := start(t, q, m.handle)
	var actors sync.WaitGroup
	for range 4 {
		actors.Go(m.act)
	}
	if seed%3 > 0 {
		actors.Wait()
		m.mu.Lock()
		m.calm = true
		m.mu.Unlock()
		q.Resume()
		time.Sleep(time.Hour) // on the synctest clock
		m.check(t, depth, "without another Add")
	} else {
		time.Sleep(m.upTo(1500) * time.Microsecond) // on the synctest clock
	}
	m.mu.Lock()
	m.drains = true
	m.mu.Unlock()
	limit := time.Hour // on the synctest clock
	if seed%7 == 6 {
		limit = m.upTo(1500) * time.Microsecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := q.Drain(ctx)
	if limit < time.Hour && err != nil {
		stop()
		actors.Wait()
		synctest.Wait()
		m.checkStopped(t)
		return
	}
	if err != nil {
		t.Error(err)
	}
	actors.Wait()
	time.Sleep(time.Second) // on the synctest clock, for the goroutines that completed the last keys
	m.check(t, depth, "after the drain")
}

// checkStopped is check after the deadline of a drain, when keys may be left.
func (m *model) checkStopped(t *testing.T) {
	t.Helper()
	time.Sleep(time.Second) // on the synctest clock, for the handlers
	select {
	case <-m.q.finished:
	default:
		t.Error("Run has not returned")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.q.InFlight(); n != 0 || m.wrong != "" {
		t.Errorf("%d keys are in flight; %s", n, m.wrong)
	}
}

func (m *model) check(t *testing.T, depth *gauge, when string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wrong != "" {
		t.Error(m.wrong)
	}
	lost, failed := 0, 0
	for _, k := range m.keys {
		if k.seen < k.owed {
			lost++
		}
		if k.failed {
			failed++
		}
	}
	q := m.q.priorities
	if _, waiting := m.q.Background(); lost+m.q.Len()+m.q.InFlight()+int(waiting)+depth.n > 0 || m.q.Delayed() > failed {
		t.Errorf("%s, %d keys are lost, %d wait, %d are in flight, %d in the background, %d in backoff of %d that failed, and the metric says %d",
			when, lost, m.q.Len(), m.q.InFlight(), waiting, m.q.Delayed(), failed, depth.n)
	}
	if len(q.keys) > failed || len(q.flows.byID) > 0 || len(q.sent) > 0 || q.all.bytes.used != 0 || q.low.keys.used != 0 || q.low.bytes.used != 0 {
		t.Errorf("%s, the queue remembers %d keys, %d flows and %d times, and uses %+v and %+v", when, len(q.keys), len(q.flows.byID), len(q.sent), q.all, q.low)
	}
}
