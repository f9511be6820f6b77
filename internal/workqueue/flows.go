package workqueue

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// flows orders the normal keys. The changes of one resource in one namespace form a flow. The flows
// take turns, and each turn hands out one key. So the next key of a flow waits for at most one key
// of every other flow, however many keys the other flows have. Within a flow, keys are first in,
// first out.
//
// A flow may hold as much of a limit as is still free. A single flow can hold half of the limit,
// and two flows a third each. This leaves room for a flow that holds nothing, and fewer messages are
// ahead of its first message on the bus. Switches with shared buffers use the same rule, called a
// dynamic threshold (Choudhury and Hahne, 1998). The size of an event is unknown when its key is
// handed out, so turns count keys. A flow of large events may hold only as many bytes as any other
// flow, and thus gets the same share of the bus.
//
// A turn, a push, and a release take amortized constant time. A flow without keys takes no memory.
type flows struct {
	byID        map[flowID]*flow
	large       bool        // byID has had more than 1,000 entries
	first, last *flow       // the queue of flows that await their turn, linked by next
	full        fifo[*flow] // the flows that left that queue because they held their share
	size        int         // number of queued keys
}

type flowID struct{ group, resource, namespace string }

func flowOf(k event.Key) flowID { return flowID{k.Group, k.Resource, k.Namespace} }

// flow is one flow with queued or held keys. A flow that has queued keys but doesn't await its turn
// has reached its share. After a release, it awaits its turn again.
type flow struct {
	id     flowID
	queued fifo[item]
	keys   int64 // held by handlers
	bytes  int64
	awaits bool
	full   bool // in flows.full
	next   *flow
}

func newFlows() flows { return flows{byID: map[flowID]*flow{}} }

func (s *flows) len() int { return s.size }

func (s *flows) push(key item) {
	id := flowOf(key.Value())
	f := s.byID[id]
	if f == nil {
		f = &flow{id: id}
		s.byID[id] = f
	}
	if s.size++; f.queued.len() == 0 {
		s.await(f)
	}
	f.queued.push(key)
}

// turn returns the flow whose turn it is, or nil if every flow with queued keys holds its
// share of the limit.
func (s *flows) turn(limit *budget) *flow {
	for s.first != nil && s.first.keys > 0 && limit.exceedsShare(s.first, 4) {
		if f := s.leave(); !f.full {
			f.full = true
			s.full.push(f)
		}
	}
	return s.first
}

// pop removes and returns a key of the flow whose turn it is. The caller must then call
// use.
func (s *flows) pop() (item, *flow) {
	f := s.leave()
	key := f.queued.pop()
	if s.size--; f.queued.len() > 0 {
		s.await(f)
	}
	return key, f
}

// release subtracts from the keys and bytes that a flow holds. The flow awaits its turn again once
// it holds less than three quarters of its share, so that not every completion wakes a worker.
func (s *flows) release(f *flow, keys, bytes int64, limit *budget) {
	f.keys -= keys
	f.bytes -= bytes
	switch {
	case f.queued.len() > 0:
		if !f.awaits && (f.keys == 0 || !limit.exceedsShare(f, 3)) {
			s.await(f)
		}
	case f.keys == 0:
		s.large = s.large || len(s.byID) > 1000
		if delete(s.byID, f.id); len(s.byID) == 0 && s.large {
			s.byID, s.large = map[flowID]*flow{}, false // a map never shrinks
		}
	}
}

// released lets flows that held their share await their turn again. It is called after a key of any
// flow or priority is released. It stops once it has found maxChecks flows that still hold three
// quarters of their share.
func (s *flows) released(limit *budget) {
	for left, failed := s.full.len(), 0; left > 0 && failed < maxChecks; left-- {
		f := s.full.pop()
		waits := f.queued.len() > 0 && !f.awaits
		if waits && limit.exceedsShare(f, 3) {
			s.full.push(f)
			failed++
			continue
		}
		if f.full = false; waits {
			s.await(f)
		}
	}
}

// maxChecks bounds the time of a release when many flows hold their share.
const maxChecks = 8

// await adds a flow at the end of the queue of flows that await their turn.
func (s *flows) await(f *flow) {
	f.awaits = true
	if s.first == nil {
		s.first = f
	} else {
		s.last.next = f
	}
	s.last = f
}

// leave removes and returns the first flow of that queue.
func (s *flows) leave() *flow {
	f := s.first
	s.first, f.next, f.awaits = f.next, nil, false
	return f
}

// fifo is a first-in, first-out list. An empty fifo uses no memory.
type fifo[T comparable] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) { f.items = append(f.items, v) }

func (f *fifo[T]) pop() T {
	v := f.items[f.head]
	clear(f.items[f.head : f.head+1])
	switch f.head++; {
	case f.head == len(f.items):
		*f = fifo[T]{}
	case f.head > 1024 && f.head > len(f.items)/2:
		f.items, f.head = slices.Clone(f.items[f.head:]), 0
	}
	return v
}

// remove removes v, which must be present.
func (f *fifo[T]) remove(v T) {
	at := f.head + slices.Index(f.items[f.head:], v)
	if f.items = slices.Delete(f.items, at, at+1); f.len() == 0 {
		*f = fifo[T]{}
	}
}
