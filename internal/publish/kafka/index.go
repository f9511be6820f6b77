package kafka

import (
	"crypto/sha256"
	"sync"
)

// identity stands for a partition key in 16 bytes.
type identity [16]byte

func identify(partitionKey []byte) identity {
	sum := sha256.Sum256(partitionKey)
	return identity(sum[:16])
}

// index knows the position of the last event of every object, and which objects have
// one on its way. That makes compare-and-set of what Kafka has no notion of: there is
// one writer, so what it knows is what there is.
type index struct {
	mu   sync.Mutex
	last map[identity]uint64
	busy map[identity]bool
}

func newIndex() *index { return &index{last: map[identity]uint64{}, busy: map[identity]bool{}} }

// begin marks an object as busy if its last event is at the expected position.
// Otherwise it gives that position.
func (x *index) begin(id identity, expected uint64) (last uint64, busy, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last, busy = x.last[id], x.busy[id]
	if busy || last != expected {
		return last, busy, false
	}
	x.busy[id] = true
	return last, false, true
}

// beginMarker marks a marker as busy; it expects nothing.
func (x *index) beginMarker(id identity) (ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.busy[id] {
		return false
	}
	x.busy[id] = true
	return true
}

// end ends what begin began: with the new position, or 0 for none.
func (x *index) end(id identity, stored uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.busy, id)
	if stored != 0 {
		x.last[id] = stored
	}
}

// remove ends what begin began, with no event left.
func (x *index) remove(id identity) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.busy, id)
	delete(x.last, id)
}

// found says what the bus holds of an object, unless it is known to hold something later.
func (x *index) found(id identity, position uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.busy[id] && x.last[id] < position {
		x.last[id] = position
	}
}

// lost forgets an object's last event, unless there is another by now.
func (x *index) lost(id identity, position uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last[id] == position {
		delete(x.last, id)
	}
}
