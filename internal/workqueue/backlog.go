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
	turns []schema.GroupResource                     // the resources in of, in the order of their turns
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

// has reports whether the backlog has a key.
func (b *backlog) has(key event.Key) bool {
	_, ok := b.of[key.GroupResource()][nameOf(key)]
	return ok
}

func (b *backlog) len() int { return b.size }

// AddLowPriority enqueues a key for background work: a first sync, a resync or a
// comparison.
func (q *Queue) AddLowPriority(key event.Key) {
	q.staging.Lock()
	defer q.staging.Unlock()
	handle, staged := unique.Make(key), 0
	if q.backlog.len() == 0 {
		if staged = q.priorities.waiting(low); staged == 0 {
			q.background = 0
		}
	}
	switch {
	case q.draining, q.isParked(handle), q.priorities.isQueued(handle):
	case q.backlog.len() == 0 && staged < maxStaged && !q.isPaused():
		q.background++
		q.add(handle, low)
	case q.backlog.push(key):
		q.background++
		q.depth.Inc()
	}
}

// maxStaged limits the low-priority keys in client-go's queue. The other low-priority keys stay in
// the backlog until feed moves them. Workers call feed whenever they take a key out of the queue,
// and Resume calls it at the end of a pause. So while the backlog has keys and the queue is not
// paused, either client-go's queue also has low-priority keys, or feed is about to be called.
const maxStaged = 256

// feed moves keys from the backlog to client-go's queue, until that has maxStaged low-priority
// keys. It moves none during a pause, because a key takes less memory in the backlog.
func (q *Queue) feed() {
	q.staging.Lock()
	defer q.staging.Unlock()
	for q.backlog.len() > 0 && q.priorities.waiting(low) < maxStaged && !q.isPaused() {
		q.add(unique.Make(q.backlog.pop()), low)
		q.depth.Dec()
	}
	if q.draining && q.backlog.len() == 0 {
		q.drained.Do(func() { close(q.emptied) })
	}
}
