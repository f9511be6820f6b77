package workqueue

import (
	"sync"

	kubequeue "k8s.io/client-go/util/workqueue"
)

// lanes is the order in which keys are handed out: what has changed goes before what can
// wait, such as the hundred thousand keys of a first sync. In each lane the first to come
// is the first to go; and after some of what has changed comes one that can wait, so that
// these come to their end.
//
// A key is handed out once for each time it is pushed. One that waits and then changes goes
// over to the other lane, and leaves an entry behind that is passed over.
type lanes struct {
	mu     sync.Mutex
	keys   map[item]place // that are queued, about to be, or handed out and not done
	lines  [2]line
	queued int
	behind int  // of those, that can wait
	many   bool // have been
	row    int  // handed out of what has changed, since the last of what can wait
}

var _ kubequeue.Queue[item] = (*lanes)(nil)

type place struct {
	lane   lane
	queued bool
}

type lane uint8

const (
	changed lane = iota // and every key of which nothing has been said
	canWait
)

// longestRow of what has changed is handed out while others wait.
const longestRow = 7

func newLanes() *lanes { return &lanes{keys: map[item]place{}} }

// expect says in which lane a key belongs that is about to be added. What has changed stays
// so until it is handed out.
func (l *lanes) expect(key item, in lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.keys[key]
	if known && (in == canWait || p.lane == changed) {
		return
	}
	l.keys[key] = place{in, p.queued}
	if p.queued { // so it could wait, and cannot any more
		l.lines[in].push(key)
		l.behind--
	}
}

// Push is part of [kubequeue.Queue], as are the next three. They are called one at a time.
func (l *lanes) Push(key item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.keys[key]
	l.keys[key] = place{p.lane, true}
	l.lines[p.lane].push(key)
	if l.queued++; p.lane == canWait {
		l.behind++
	}
}

// Touch has nothing to do: expect has done it.
func (l *lanes) Touch(item) {}

func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued
}

// isQueued tells whether a key is going to be handed out, whatever is added.
func (l *lanes) isQueued(key item) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key].queued
}

// waiting is the number of keys that are queued and can wait.
func (l *lanes) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.behind
}

func (l *lanes) Pop() item {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		from := changed
		if l.lines[changed].len() == 0 || l.row >= longestRow && l.lines[canWait].len() > 0 {
			from = canWait
		}
		key := l.lines[from].pop()
		if l.keys[key] != (place{from, true}) {
			continue // it went over to the other lane
		}
		if l.row++; from == canWait {
			l.row = 0
			l.behind--
		}
		l.keys[key] = place{lane: from} // where it comes back to if it must
		l.queued--
		return key
	}
}

// of is the lane that a key was handed out from, or has changed to since.
func (l *lanes) of(key item) lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key].lane
}

// done forgets a key that has been dealt with. If it has changed meanwhile, that is what
// is to be told of it when it comes again.
func (l *lanes) done(key item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.many = l.many || len(l.keys) > 1000
	if delete(l.keys, key); len(l.keys) == 0 && l.many {
		l.keys, l.many = map[item]place{}, false // a map keeps the memory of the most that it had
	}
}

// line is first in, first out. An empty one keeps no memory.
type line struct {
	items []item
	head  int
}

func (l *line) len() int { return len(l.items) - l.head }

func (l *line) push(key item) { l.items = append(l.items, key) }

func (l *line) pop() item {
	key := l.items[l.head]
	l.items[l.head] = item{}
	switch l.head++; {
	case l.head == len(l.items):
		*l = line{}
	case l.head > 1024 && l.head > len(l.items)/2:
		l.items, l.head = append([]item(nil), l.items[l.head:]...), 0
	}
	return key
}
