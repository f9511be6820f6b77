package workqueue

import (
	"sync"
	"time"

	kubequeue "k8s.io/client-go/util/workqueue"
)

// priorityQueue orders the keys of client-go's queue. No other type counts the keys and bytes that
// handlers hold.
//
// Normal keys are handed out before low-priority keys, such as the hundred thousand keys of a first
// sync. [flows] orders the normal keys, and [backlog] the low-priority keys. One low-priority key
// follows every seven normal keys, so that low-priority work always makes progress.
//
// A key counts against the limits from the moment it is handed out. While the low-priority limit is
// reached, only normal keys are handed out. So a worker never waits while it holds a key.
//
// A key is handed out once for each Push. A low-priority key that changes while it is
// queued becomes a normal key.
type priorityQueue struct {
	mu      sync.Mutex
	change  sync.Cond         // signaled when await or idle may continue
	keys    map[item]keyState // keys that are queued, about to be queued, or handed out and not completed
	large   bool              // keys has had more than 1,000 entries
	flows   flows             // the normal keys
	lowFIFO fifo              // the low-priority keys that left the backlog
	streak  int               // normal keys handed out since the last low-priority key

	all      budget             // all keys that handlers hold
	low      budget             // the low-priority keys among them
	window   window             // the limit of low
	pace     pace               // the rests of low-priority keys
	sent     map[item]time.Time // when the events of low-priority keys in flight were published
	granted  item               // the key that the next Pop returns; the zero value for none
	draining bool               // no more keys are added
	ended    bool               // no more keys are handed out
}

var _ kubequeue.Queue[item] = (*priorityQueue)(nil)

// keyState is the state of one key.
type keyState struct {
	priority priority // of the queued key, or for the next Push
	queued   bool
	hold     // by the handler of the key; the zero value if no handler holds it
}

type priority uint8

const (
	normal priority = iota // the default, without a call of expect
	low
)

// maxStreak is the number of normal keys handed out in a row while low-priority keys are
// queued.
const maxStreak = 7

// newPriorityQueue returns an empty queue. delay is [Config.MaxLowPriorityDelay].
func newPriorityQueue(all, low Limit, delay time.Duration) *priorityQueue {
	q := &priorityQueue{
		keys: map[item]keyState{}, flows: newFlows(), all: newBudget(all), low: newBudget(low),
		window: newWindow(low.Keys, delay), pace: pace{on: delay > 0}, sent: map[item]time.Time{},
	}
	q.low.keys.resize(q.window.keys())
	q.change.L = &q.mu
	return q
}

// expect sets the priority of a key that is about to be added. A normal key stays normal
// until it is handed out.
func (q *priorityQueue) expect(key item, as priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, known := q.keys[key]
	if known && (as == low || p.priority == normal) {
		return
	}
	p.priority = as
	q.keys[key] = p
	if p.queued {
		q.lowFIFO.remove(key)
		q.flows.push(key)
		q.wake()
	}
}

// Push, Touch, Len and Pop implement [kubequeue.Queue]. client-go's queue serializes the calls.
func (q *priorityQueue) Push(key item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.keys[key]
	p.queued = true
	q.keys[key] = p
	if p.priority == low {
		q.lowFIFO.push(key)
	} else {
		q.flows.push(key)
	}
	q.wake()
}

// Touch does nothing, because expect has set the priority.
func (q *priorityQueue) Touch(item) {}

// Len is 1 after await has granted a key, so that Get of client-go's queue returns the key.
func (q *priorityQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.granted != (item{}) {
		return 1
	}
	return 0
}

// Pop returns the key that await has granted.
func (q *priorityQueue) Pop() item {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := q.granted
	q.granted = item{}
	q.wake()
	return key
}

// ready reports whether a key may be handed out.
func (q *priorityQueue) ready() bool {
	return q.granted == (item{}) && q.all.open() && (q.isLowTurn() || q.flows.turn(&q.all) != nil)
}

// isLowTurn reports whether a low-priority key is next. While normal keys wait for their flow's
// share of the limits, low-priority keys don't use the room that the flow leaves free.
func (q *priorityQueue) isLowTurn() bool {
	return q.lowFIFO.len() > 0 && q.low.open() && !q.pace.resting && (q.flows.len() == 0 || q.streak >= maxStreak)
}

// grant takes the next key out of the queue. The queue must be ready.
func (q *priorityQueue) grant() {
	from, h := normal, hold{}
	if q.isLowTurn() {
		from, q.granted, q.streak = low, q.lowFIFO.pop(), 0
	} else {
		q.granted, h.flow = q.flows.pop()
		q.streak++
		q.pace.changed = time.Now()
	}
	q.keys[q.granted] = keyState{priority: from, hold: h} // a retry keeps its priority
	q.use(h, 1)
}

// wake wakes a worker if a key may be handed out. Pop wakes the next worker.
func (q *priorityQueue) wake() {
	if q.ready() {
		q.change.Signal()
	}
}

// endRest allows low-priority keys to be handed out again.
func (q *priorityQueue) endRest() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.resting = false
	q.wake()
}

// await grants a key, which the caller must then take from client-go's queue. It blocks while no
// key may be handed out. It returns false when no more keys will be handed out: after end, or after
// drain once no key is queued or held. Held keys count because a held key that changed is queued
// once more.
func (q *priorityQueue) await() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.ended, q.draining && q.flows.len()+q.lowFIFO.len()+int(q.all.keys.used) == 0:
			return false
		case q.ready():
			q.grant()
			return true
		}
		q.change.Wait()
	}
}

func (q *priorityQueue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
	q.change.Broadcast()
}

func (q *priorityQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.change.Broadcast()
}

// isQueued reports whether a key will be handed out without another Add.
func (q *priorityQueue) isQueued(key item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keys[key].queued
}

// waiting returns the number of queued keys of a priority.
func (q *priorityQueue) waiting(as priority) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if as == low {
		return q.lowFIFO.len()
	}
	return q.flows.len()
}
