package kafka

import (
	"crypto/sha256"
	"sync"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// identity is a 16-byte hash of a partition key.
type identity [16]byte

func identify(partitionKey []byte) identity {
	sum := sha256.Sum256(partitionKey)
	return identity(sum[:16])
}

// index holds the position of the last event of every object, and the objects that have an event in
// flight. It provides the compare-and-set that Kafka lacks. The index is complete, because a
// cluster has only one writer.
type index struct {
	mu   sync.Mutex
	last map[identity]uint64
	busy map[identity]bool
}

func newIndex() *index { return &index{last: map[identity]uint64{}, busy: map[identity]bool{}} }

// begin marks an object as busy and returns true for ok, if the object is not busy and its last
// event is at the expected position. Otherwise, it returns the position of the last event, and
// whether the object is busy.
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

// position returns the position of an object's last event, 0 for none.
func (x *index) position(id identity) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last[id]
}

// beginMarker marks a marker as busy. A marker has no expected position.
func (x *index) beginMarker(id identity) (ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.busy[id] {
		return false
	}
	x.busy[id] = true
	return true
}

// end completes begin or beginMarker. stored is the new position, 0 if nothing was stored.
func (x *index) end(id identity, stored uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.busy, id)
	if stored != 0 {
		x.last[id] = stored
	}
}

// remove completes begin for an object that no longer has events.
func (x *index) remove(id identity) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.busy, id)
	delete(x.last, id)
}

// found sets the position of an object's last event, unless the index has a later event in the same
// partition, or the object has an event in flight.
func (x *index) found(id identity, position uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.last[id]
	if isLater := last < position || publish.Partition(last) != publish.Partition(position); isLater && !x.busy[id] {
		x.last[id] = position
	}
}

// lost removes the position of an object's last event, unless the object has another last event by
// now.
func (x *index) lost(id identity, position uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last[id] == position {
		delete(x.last, id)
	}
}
