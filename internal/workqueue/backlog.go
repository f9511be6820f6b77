package workqueue

import (
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// backlog is a set of low-priority keys. A first sync or a resync can add a hundred thousand keys
// at once. A key takes 65 bytes in the backlog, and 350 bytes in client-go's queue, including its
// priority and its handle.
//
// The resources take turns, so the first sync of a small resource doesn't wait for the first sync
// of a large resource. The keys of one resource have no order.
type backlog struct {
	of    map[schema.GroupResource]map[name]struct{} // contains no empty set
	turns []schema.GroupResource                     // the resources that have keys, in the order of their turns
	size  int
}

type name struct{ namespace, name string }

func nameOf(k event.Key) name { return name{k.Namespace, k.Name} }

func newBacklog() *backlog { return &backlog{of: map[schema.GroupResource]map[name]struct{}{}} }

// push adds a key, and reports whether it was absent.
func (b *backlog) push(key event.Key) bool {
	gr, n := key.GroupResource(), nameOf(key)
	names := b.of[gr]
	if names == nil {
		names = map[name]struct{}{}
		b.of[gr], b.turns = names, append(b.turns, gr)
	}
	if _, ok := names[n]; ok {
		return false
	}
	names[n] = struct{}{}
	b.size++
	return true
}

// pop removes and returns a key. The backlog must not be empty.
func (b *backlog) pop() (key event.Key) {
	gr := b.turns[0]
	copy(b.turns, b.turns[1:])
	b.turns[len(b.turns)-1] = gr
	for n := range b.of[gr] {
		key = event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: n.namespace, Name: n.name}
		break
	}
	b.remove(key)
	return key
}

// remove removes a key, and reports whether it was present.
func (b *backlog) remove(key event.Key) bool {
	if !b.has(key) {
		return false
	}
	gr := key.GroupResource()
	b.size--
	if delete(b.of[gr], nameOf(key)); len(b.of[gr]) == 0 {
		delete(b.of, gr)
		b.turns = slices.DeleteFunc(b.turns, func(of schema.GroupResource) bool { return of == gr })
	}
	return true
}

func (b *backlog) has(key event.Key) bool {
	_, ok := b.of[key.GroupResource()][nameOf(key)]
	return ok
}

func (b *backlog) len() int { return b.size }

// maxStaged limits the low-priority keys in client-go's queue. The other low-priority keys stay in
// the backlog. A worker that takes a key also moves a key from the backlog, and Resume moves keys
// at the end of a pause. So keys leave the backlog as long as workers take keys.
const maxStaged = 256

// add prepares a changed key for client-go's queue. It reports whether the caller must add the key to
// that queue.
func (q *priorityQueue) add(key item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.draining {
		return false
	}
	q.leaveBacklog(key)
	q.expect(key, normal)
	return true
}

// leaveBacklog removes a key from the backlog because client-go's queue has it or is about to get
// it.
func (q *priorityQueue) leaveBacklog(key item) {
	if q.backlog.remove(key.Value()) {
		q.depth.Dec() // client-go's queue counts the key
	}
}

// addLow is like add, but for a low-priority key, which it might put in the backlog. A held key and a
// key in backoff go to client-go's queue, so that no key is in both the queue and the backlog.
func (q *priorityQueue) addLow(key item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.backlog.len()+q.waiting(low) == 0 {
		q.background = 0
	}
	at := q.keys[key].place
	switch {
	case q.draining, at == added, at == queued, at == readded, at == parked:
	case at == held, at == delayed, q.backlog.len() == 0 && q.waiting(low) < maxStaged && q.except == nil:
		q.background++
		q.expect(key, low)
		return true
	case q.backlog.push(key.Value()):
		q.background++
		q.depth.Inc()
	}
	return false
}

// mayStage reports whether a key may leave the backlog. During a pause, every key stays in the
// backlog, where it takes less memory.
func (q *priorityQueue) mayStage() bool {
	return q.except == nil && q.backlog.len() > 0 && q.waiting(low) < maxStaged
}

// stage removes a key from the backlog and returns it. The caller must add the key to client-go's
// queue.
func (q *priorityQueue) stage() item {
	key := unique.Make(q.backlog.pop())
	q.depth.Dec()
	q.expect(key, low)
	return key
}
