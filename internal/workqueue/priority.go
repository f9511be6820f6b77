package workqueue

import (
	"sync"
	"time"

	kubequeue "k8s.io/client-go/util/workqueue"

	"github.com/kuberelay/kuberelay/internal/event"
)

// priorityQueue orders the keys of client-go's queue. It has the state of every key, and counts the
// keys and bytes that handlers hold.
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
	keys    map[item]keyState // keys that are neither absent nor in the backlog
	count   [places][priorities]int
	large   bool       // keys has had more than 1,000 entries
	flows   flows      // the normal keys
	lowFIFO fifo[item] // the low-priority keys that left the backlog
	streak  int        // normal keys handed out since the last low-priority key

	backlog    *backlog
	background int64                 // low-priority keys added since the queue last had none
	depth      kubequeue.GaugeMetric // keys in the queue and the backlog

	all     budget             // all keys that handlers hold
	low     budget             // the low-priority keys among them
	window  window             // the limit of low
	pace    pace               // makes low-priority keys rest while objects change
	sent    map[item]time.Time // when the events of low-priority keys in flight were published
	granted item               // the key that the next Pop returns; the zero value for none

	except   func(event.Key) bool // matches the keys that are handed out during a pause; nil without a pause
	draining bool                 // no more keys are added
	emptied  chan struct{}        // closed when the queue is draining and client-go's queue has every key
	once     sync.Once            // closes emptied
	closed   bool                 // client-go's queue accepts no more keys
	ended    bool                 // no more keys are handed out
}

var _ kubequeue.Queue[item] = (*priorityQueue)(nil)

// keyState is the state of one key.
type keyState struct {
	place    place
	priority priority // of the queued key, or for the next Push
	hold              // by the handler of the key; the zero value if no handler holds it
}

type place uint8

const (
	absent  place = iota
	added         // to client-go's queue, which has not pushed it yet
	queued        // in flows or lowFIFO
	held          // by a handler
	readded       // to client-go's queue while a handler holds the key; pushed after Done
	delayed       // in backoff
	parked        // held back by the pause
	places
)

type priority uint8

const (
	normal priority = iota // the default
	low
	priorities
)

// maxStreak is the number of normal keys handed out in a row while low-priority keys are
// queued.
const maxStreak = 7

// newPriorityQueue returns an empty queue. delay is [Config.MaxLowPriorityDelay].
func newPriorityQueue(all, low Limit, delay time.Duration) *priorityQueue {
	q := &priorityQueue{
		keys: map[item]keyState{}, flows: newFlows(), all: newBudget(all), low: newBudget(low), backlog: newBacklog(), depth: noGauge{},
		window: newWindow(low.Keys, delay), pace: pace{on: delay > 0}, sent: map[item]time.Time{}, emptied: make(chan struct{}),
	}
	q.low.keys.resize(q.window.keys())
	q.change.L = &q.mu
	return q
}

// move changes the state of a key. The zero value removes the key.
func (q *priorityQueue) move(key item, to keyState) {
	if from, known := q.keys[key]; known {
		q.count[from.place][from.priority]--
	}
	if to.place != absent {
		q.count[to.place][to.priority]++
		q.keys[key] = to
		return
	}
	q.large = q.large || len(q.keys) > 1000
	if delete(q.keys, key); len(q.keys) == 0 && q.large {
		q.keys, q.large = map[item]keyState{}, false // a map never shrinks
	}
}

// expect sets the priority of a key that the caller is about to add to client-go's queue. A normal key
// stays normal until it is handed out.
func (q *priorityQueue) expect(key item, as priority) {
	s := q.keys[key]
	switch s.place {
	case absent:
		q.move(key, keyState{place: added, priority: as})
		return
	case held:
		s.place = readded
		q.move(key, s)
	}
	if as == normal && s.priority == low {
		s.priority = normal
		q.move(key, s)
		if s.place == queued {
			q.lowFIFO.remove(key)
			q.flows.push(key)
			q.wake()
		}
	}
}

// Push, Touch, Len, and Pop implement [kubequeue.Queue]. client-go's queue serializes the calls.
func (q *priorityQueue) Push(key item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, known := q.keys[key]
	if s.place = queued; !known { // a backoff ended after the key had been handled
		s.priority = low
		q.leaveBacklog(key)
	}
	q.move(key, s)
	if s.priority == low {
		q.lowFIFO.push(key)
	} else {
		q.flows.push(key)
	}
	q.wake()
	q.checkEmptied()
}

// Touch does nothing, because expect has set the priority.
func (q *priorityQueue) Touch(item) {}

// Len is 1 after await has granted a key, so that client-go's Get returns the key. Len needs no
// lock: only the worker that was granted the key calls Get, and await grants no other key before
// Pop.
func (q *priorityQueue) Len() int {
	if q.granted != (item{}) {
		return 1
	}
	return 0
}

// Pop returns the key that await has granted. client-go's queue ignores a key that is added before Pop,
// because the handler has not begun.
func (q *priorityQueue) Pop() item {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := q.granted
	q.granted = item{}
	if s := q.keys[key]; s.place == readded {
		s.place = held
		q.move(key, s)
		q.checkEmptied()
	}
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

// grant is a key that is handed out.
type grant struct {
	key    item
	except func(event.Key) bool // not nil during a pause
	staged item                 // a key from the backlog that the worker must add to client-go's queue; the zero value for none
}

// grant takes the next key out of the queue. The queue must be ready.
func (q *priorityQueue) grant() (g grant) {
	s := keyState{place: held}
	if q.isLowTurn() {
		s.priority, g.key, q.streak = low, q.lowFIFO.pop(), 0 // a retry keeps its priority
	} else {
		g.key, s.flow = q.flows.pop()
		q.streak++
		q.pace.changed = time.Now()
	}
	q.use(s.hold, 1)
	q.move(g.key, s)
	g.except = q.except
	if q.mayStage() {
		g.staged = q.stage()
	}
	return g
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
// close once no key is queued or held. Held keys count because a held key that changed is queued
// once more.
func (q *priorityQueue) await() (grant, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.ended, q.closed && q.flows.len()+q.lowFIFO.len()+int(q.all.keys.used) == 0:
			return grant{}, false
		case q.ready():
			g := q.grant()
			q.granted = g.key
			return g, true
		}
		q.change.Wait()
	}
}

// close makes await return false once no key is queued or held.
func (q *priorityQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.change.Broadcast()
}

func (q *priorityQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.change.Broadcast()
}
