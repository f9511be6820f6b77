// Package workqueue hands keys to workers. It adds two priorities, fair turns, limits, and
// asynchronous completion to client-go's rate-limited queue.
//
// At most one handler holds a key at any time: from the handler's call until it calls done. This keeps the
// events of each object in order. If a key is added while a handler holds it, the queue hands out the key
// again afterward. A key whose handler failed is handed out again after an exponential backoff with jitter.
// The queue has no retry limit, because a limit would silently drop changes.
//
// A key is handed out only while the limits allow it. So a worker never waits while it holds a key,
// and low-priority work never keeps a worker from processing a change.
//
// The changes of each resource in each namespace form a flow. The flows take turns. A flow gets no
// more turns once it uses as much of a limit as is still free. So a namespace that changes
// constantly doesn't delay the others.
//
// The queue holds keys, never events. If the bus is down for hours, memory grows only by
// the changed keys.
package workqueue

import (
	"context"
	"math"
	"sync"
	"time"
	"unique"

	kubequeue "k8s.io/client-go/util/workqueue"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Result is the outcome of handling a key.
type Result struct {
	// Err, if not nil, requeues the key after a backoff.
	Err error
	// Again requeues the key at once, because another step is due.
	Again bool
}

// Handler processes one key. It calls done exactly once, from any goroutine, possibly after
// it has returned, within a bounded time.
type Handler func(ctx context.Context, key event.Key, done func(Result))

// Config configures a Queue. There are no defaults: every field except MetricsProvider and
// MaxLowPriorityDelay is required.
type Config struct {
	Workers     int   // maximum number of running handlers; a key can be in flight after its handler returns
	MaxInFlight Limit // limits the keys that are handed out and not completed
	// MaxLowPriorityInFlight limits the low-priority keys in flight. The bus processes messages in
	// order, so a change waits behind the low-priority messages.
	MaxLowPriorityInFlight Limit
	// MaxLowPriorityDelay is how long a low-priority event may wait on the bus for other
	// low-priority events. The queue reduces the low-priority keys in flight accordingly. 0 means
	// no such limit.
	MaxLowPriorityDelay time.Duration

	BaseDelay time.Duration // backoff after the first failure
	MaxDelay  time.Duration // maximum backoff, before jitter

	MetricsProvider kubequeue.MetricsProvider // nil for none
}

// item is a key, interned to the size of a pointer, because client-go keeps a failed key in five
// maps.
type item = unique.Handle[event.Key]

// Queue holds keys, and runs the workers that handle them. Create it with [New].
type Queue struct {
	queue      kubequeue.TypedRateLimitingInterface[item]
	priorities *priorityQueue

	workers  int
	finished chan struct{} // closed when Run returns
}

// New returns a queue that accepts keys at once. [Queue.Run] hands them out.
func New(c Config) *Queue {
	k := newPriorityQueue(c.MaxInFlight, c.MaxLowPriorityInFlight, c.MaxLowPriorityDelay)
	if c.MetricsProvider != nil {
		k.depth = c.MetricsProvider.NewDepthMetric("keys")
	}
	queue := kubequeue.NewTypedWithConfig(kubequeue.TypedQueueConfig[item]{Name: "keys", MetricsProvider: c.MetricsProvider, Queue: k})
	return &Queue{
		queue: kubequeue.NewTypedRateLimitingQueueWithConfig(newBackoff(c.BaseDelay, c.MaxDelay), kubequeue.TypedRateLimitingQueueConfig[item]{
			DelayingQueue: kubequeue.NewTypedDelayingQueueWithConfig(kubequeue.TypedDelayingQueueConfig[item]{Name: "keys", MetricsProvider: c.MetricsProvider, Queue: queue}),
		}),
		priorities: k,
		workers:    c.Workers,
		finished:   make(chan struct{}),
	}
}

// Add enqueues a changed key. It does not block. After Drain has begun, Add does nothing, because
// the next start finds the change again.
func (q *Queue) Add(key event.Key) {
	if handle := unique.Make(key); q.priorities.add(handle) {
		q.queue.Add(handle)
	}
}

// AddLowPriority enqueues a key for background work: a first sync, a resync, or a comparison.
func (q *Queue) AddLowPriority(key event.Key) {
	if handle := unique.Make(key); q.priorities.addLow(handle) {
		q.queue.Add(handle)
	}
}

// RetryNow ends the backoff of every key. Call it when the cause of the failures is gone.
func (q *Queue) RetryNow() {
	q.priorities.mu.Lock()
	keys := q.priorities.at(delayed)
	q.priorities.mu.Unlock()
	q.endBackOff(keys)
}

func (q *Queue) endBackOff(keys []item) {
	for _, key := range keys {
		q.queue.Forget(key)
		q.queue.Add(key)
	}
}

// Hold sets the size of a key's event, which counts against the limits. The handler of the
// key calls it before done, and again if the size of the event changes. It does not block.
// While a limit is exceeded, further keys stay in the queue.
func (q *Queue) Hold(key event.Key, bytes int) {
	q.priorities.holdBytes(unique.Make(key), uint32(min(bytes, math.MaxUint32)))
}

// Run hands keys to handle until the queue is drained or ctx ends. It blocks until every
// worker has returned and every key is completed. Handlers receive ctx. Call Run once.
func (q *Queue) Run(ctx context.Context, handle Handler) {
	defer close(q.finished)
	defer q.end() // the workers can notice the end of ctx before AfterFunc does
	defer context.AfterFunc(ctx, q.end)()
	var workers sync.WaitGroup
	for range q.workers {
		workers.Go(func() {
			for ctx.Err() == nil && q.processNext(ctx, handle) {
			}
		})
	}
	workers.Wait()
	q.priorities.idle()
}

// end stops handing out keys.
func (q *Queue) end() {
	q.priorities.end()
	q.queue.ShutDown()
}

func (q *Queue) processNext(ctx context.Context, handle Handler) bool {
	next, ok := q.take()
	if !ok {
		return false
	}
	if next.except != nil && !next.except(next.key.Value()) && q.priorities.park(next.key) {
		q.queue.Done(next.key)
		return true
	}
	q.dispatch(ctx, next.key, handle)
	return true
}

// take blocks until a key is handed out. It returns false when no more keys will be handed out. The
// worker waits in the priorityQueue, because nothing wakes client-go's queue when a limit allows
// keys again.
func (q *Queue) take() (grant, bool) {
	next, ok := q.priorities.await()
	if ok {
		q.queue.Get() // returns next.key
	}
	if next.staged != (item{}) {
		q.queue.Add(next.staged)
	}
	return next, ok
}

// dispatch calls the handler. client-go's queue rejects keys at the end of a drain, so during a drain
// dispatch itself runs the next step of a key.
func (q *Queue) dispatch(ctx context.Context, key item, handle Handler) {
	handle(ctx, key.Value(), func(r Result) {
		if !q.complete(key, r) {
			go q.dispatch(ctx, key, handle) // the key is still held, so Run waits for it
		}
	})
}

// complete releases a key, and queues it again if necessary. It returns false if the caller must run
// the next step of the key.
func (q *Queue) complete(key item, r Result) bool {
	if !q.priorities.completed(key, r) {
		return false
	}
	if r.Err != nil {
		q.queue.AddRateLimited(key)
	} else if q.queue.Forget(key); r.Again {
		q.queue.Add(key) // queued by Done
	}
	q.queue.Done(key)
	return true
}

// noGauge discards the metric.
type noGauge struct{}

func (noGauge) Inc() {}
func (noGauge) Dec() {}
