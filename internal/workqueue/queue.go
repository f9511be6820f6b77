// Package workqueue hands keys to workers: client-go's rate-limited queue, with
// handlers that may finish after they have returned.
//
// It guarantees that a key is with at most one handler at a time, from the
// moment the handler gets it until the handler calls its completion; that is
// what keeps the events of one object in order. A key added meanwhile is handed
// out again afterwards. A key whose handling failed comes back, for ever, after
// an exponential back-off with jitter: there is no retry limit, because a limit
// would be a silent drop.
//
// It holds keys, never events, so a bus that is down for hours costs it no
// more than the keys of what changed.
package workqueue

import (
	"context"
	"errors"
	"sync"
	"time"
	"unique"

	kubequeue "k8s.io/client-go/util/workqueue"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Result is what became of a key.
type Result struct {
	// Err, if not nil, brings the key back after a back-off.
	Err error
	// Again brings the key back at once: one step is done and another is due.
	Again bool
}

// Handler works on one key. It calls done exactly once, from any goroutine,
// possibly after it has returned, within a bounded time.
type Handler func(ctx context.Context, key event.Key, done func(Result))

// Config has no defaults: the zero value of each field but MetricsProvider is an
// error of the caller.
type Config struct {
	Workers     int           // handlers that run at once; those awaiting a completion are not counted
	MaxInFlight int           // keys handed out whose completion is outstanding
	MaxBehind   int           // of those, keys that can wait: a change stands behind them at the bus
	BaseDelay   time.Duration // back-off after the first failure
	MaxDelay    time.Duration // the longest back-off, before jitter

	MetricsProvider kubequeue.MetricsProvider // nil for none
}

// item is a key in the size of a pointer. client-go keeps a key that failed in five
// maps, and while the bus is down every key that changes is such a one.
type item = unique.Handle[event.Key]

// Queue is a queue of keys with its workers. Make one with [New].
type Queue struct {
	queue    kubequeue.TypedRateLimitingInterface[item]
	lanes    *lanes
	inFlight *gate

	behind   sync.Mutex // taken before mu, and held while a key goes from the backlog to the queue
	backlog  *backlog
	depth    kubequeue.GaugeMetric // of queue and backlog
	draining bool
	drained  sync.Once
	emptied  chan struct{} // closed when the queue drains and the backlog is empty

	mu      sync.Mutex
	delayed map[item]struct{} // in back-off
	paused  bool
	but     func(event.Key) bool // handed out in a pause all the same
	parked  map[item]struct{}    // not handed out for the sake of the pause

	workers  int
	finished chan struct{} // closed when Run returns
}

// New makes a queue that accepts keys at once and hands them out in [Queue.Run].
func New(c Config) *Queue {
	l := newLanes()
	var depth kubequeue.GaugeMetric = noGauge{}
	if c.MetricsProvider != nil {
		depth = c.MetricsProvider.NewDepthMetric("keys")
	}
	queue := kubequeue.NewTypedWithConfig(kubequeue.TypedQueueConfig[item]{Name: "keys", MetricsProvider: c.MetricsProvider, Queue: l})
	return &Queue{
		queue: kubequeue.NewTypedRateLimitingQueueWithConfig(newBackoff(c.BaseDelay, c.MaxDelay), kubequeue.TypedRateLimitingQueueConfig[item]{
			DelayingQueue: kubequeue.NewTypedDelayingQueueWithConfig(kubequeue.TypedDelayingQueueConfig[item]{Name: "keys", MetricsProvider: c.MetricsProvider, Queue: queue}),
		}),
		lanes:    l,
		backlog:  newBacklog(),
		depth:    depth,
		inFlight: newGate(c.MaxInFlight, c.MaxBehind),
		workers:  c.Workers,
		emptied:  make(chan struct{}),
		finished: make(chan struct{}),
		delayed:  map[item]struct{}{},
	}
}

// Add marks a key as dirty. It does not block. After Drain has begun it does
// nothing: what is dirty then is found again at the next start.
func (q *Queue) Add(key event.Key) {
	q.behind.Lock()
	defer q.behind.Unlock()
	if q.draining {
		return
	}
	ahead := q.backlog.remove(key)
	q.add(unique.Make(key), changed)
	if ahead {
		q.depth.Dec() // the queue has counted it
	}
}

// AddBehind is Add for a key that can wait for all that have changed: of a first sync, a
// resync or a comparison.
func (q *Queue) AddBehind(key event.Key) {
	q.behind.Lock()
	defer q.behind.Unlock()
	handle := unique.Make(key)
	switch {
	case q.draining, q.isParked(handle), q.lanes.isQueued(handle):
	case q.backlog.len() == 0 && q.lanes.waiting() < nearTurn && !q.isPaused():
		q.add(handle, canWait)
	case q.backlog.push(key):
		q.depth.Inc()
	}
}

// nearTurn is how many keys that can wait are in client-go's queue; the others are in the
// backlog. While there are any, and there is no pause, some that can wait are in the queue
// too, or feed is about to be called: by whoever takes a key out of the queue, and at the
// end of a pause.
const nearTurn = 256

// feed brings keys from the backlog to the queue while there is room, and none in a pause:
// they take less memory where they are.
func (q *Queue) feed() {
	q.behind.Lock()
	defer q.behind.Unlock()
	for q.backlog.len() > 0 && q.lanes.waiting() < nearTurn && !q.isPaused() {
		q.add(unique.Make(q.backlog.pop()), canWait)
		q.depth.Dec()
	}
	if q.draining && q.backlog.len() == 0 {
		q.drained.Do(func() { close(q.emptied) })
	}
}

func (q *Queue) add(key item, in lane) {
	q.lanes.expect(key, in)
	q.queue.Add(key)
}

// Pause hands out no keys until Resume, but of those in the queue the ones for which the
// function says so: with the others nothing could be done, and a key that is parked costs a
// fraction of one that fails again and again. What is with a handler stays there. While the
// queue drains there is no pause.
func (q *Queue) Pause(but func(event.Key) bool) {
	q.behind.Lock()
	defer q.behind.Unlock()
	if q.draining {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused, q.but = true, but
}

// Resume ends a pause.
func (q *Queue) Resume() {
	q.unpark()
	q.feed()
}

func (q *Queue) unpark() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	for key := range q.parked {
		q.queue.Add(key)
	}
	q.parked = nil
}

func (q *Queue) isPaused() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.paused
}

func (q *Queue) isParked(key item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, is := q.parked[key]
	return is
}

// park keeps a key aside in a pause.
func (q *Queue) park(key item) bool {
	q.mu.Lock()
	paused, but := q.paused, q.but
	delete(q.parked, key)
	q.mu.Unlock()
	if !paused || but(key.Value()) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.paused { // not any more
		return false
	}
	if q.parked == nil {
		q.parked = map[item]struct{}{}
	}
	q.parked[key] = struct{}{}
	return true
}

// RetryNow hands out every key that is in back-off without waiting for its end:
// what made them fail is over.
func (q *Queue) RetryNow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.delayed {
		q.queue.Forget(key)
		q.queue.Add(key)
	}
}

// Delayed is the number of keys in back-off, and of those that a pause keeps aside.
func (q *Queue) Delayed() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.delayed) + len(q.parked)
}

func (q *Queue) setDelayed(key item, is bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if is {
		q.delayed[key] = struct{}{}
	} else {
		delete(q.delayed, key)
	}
}

// Len is the number of keys that wait to be handed out, those in [Queue.Delayed] not
// counted.
func (q *Queue) Len() int {
	q.behind.Lock()
	defer q.behind.Unlock()
	return q.queue.Len() + q.backlog.len()
}

// InFlight is the number of keys that were handed out and are not completed.
func (q *Queue) InFlight() int { return q.inFlight.len() }

// Run hands keys to handle until the queue has been drained or ctx ends. It
// blocks until every worker has returned and every handed-out key is completed.
// Handlers get ctx. It is called once.
func (q *Queue) Run(ctx context.Context, handle Handler) {
	defer close(q.finished)
	stop := context.AfterFunc(ctx, func() {
		q.inFlight.end()
		q.queue.ShutDown()
	})
	defer stop()
	var workers sync.WaitGroup
	for range q.workers {
		workers.Go(func() {
			for ctx.Err() == nil && q.processNext(ctx, handle) {
			}
		})
	}
	workers.Wait()
	q.inFlight.await()
}

func (q *Queue) processNext(ctx context.Context, handle Handler) bool {
	key, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	q.feed()
	q.setDelayed(key, false)
	if q.park(key) {
		q.queue.Done(key)
		return true
	}
	in := q.lanes.of(key)
	if !q.inFlight.enter(in) {
		q.queue.Done(key)
		return false
	}
	q.hand(ctx, key, in, handle)
	return true
}

// hand calls the handler. While the queue drains a key cannot be added any more, so
// that a further step follows here.
func (q *Queue) hand(ctx context.Context, key item, in lane, handle Handler) {
	handle(ctx, key.Value(), func(r Result) {
		if r.Err == nil && r.Again && q.queue.ShuttingDown() && ctx.Err() == nil {
			go q.hand(ctx, key, in, handle) // it still holds its place, so Run waits for it
			return
		}
		q.complete(key, in, r)
	})
}

func (q *Queue) complete(key item, in lane, r Result) {
	switch {
	case r.Err != nil:
		q.setDelayed(key, true)
		q.queue.AddRateLimited(key)
	case r.Again:
		q.queue.Forget(key)
		q.queue.Add(key) // handed out again once Done is called below
	default:
		q.lanes.done(key)
		q.queue.Forget(key)
	}
	q.queue.Done(key)
	q.inFlight.leave(in)
}

// ErrDrainDeadline is returned by Drain where keys were left over.
var ErrDrainDeadline = errors.New("keys were left in the queue at the deadline")

// Drain refuses new keys and waits until Run has handed out every key it holds,
// those in back-off included, and all are completed, or returns
// [ErrDrainDeadline] when ctx ends. It ends a pause. A key that fails meanwhile need not be
// retried: it stays dirty until the next start.
//
// It does not use client-go's ShutDownWithDrain, which returns as soon as no key
// is being worked on, even where others still wait.
func (q *Queue) Drain(ctx context.Context) error {
	q.behind.Lock()
	q.draining = true
	q.behind.Unlock()
	q.RetryNow()
	q.Resume()
	select {
	case <-q.emptied: // what is in the backlog cannot be added after ShutDown
	case <-q.finished:
	case <-ctx.Done():
	}
	q.queue.ShutDown()
	select {
	case <-q.finished:
		return nil
	case <-ctx.Done():
		return ErrDrainDeadline
	}
}

// noGauge is a metric that nobody wants.
type noGauge struct{}

func (noGauge) Inc() {}
func (noGauge) Dec() {}
