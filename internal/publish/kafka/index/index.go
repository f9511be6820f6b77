package index

import (
	"crypto/sha256"
	"sync"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// ID is a 16-byte hash of a partition key.
type ID [16]byte

// Of returns the ID of a partition key.
func Of(partitionKey []byte) ID {
	sum := sha256.Sum256(partitionKey)
	return ID(sum[:16])
}

// Index is safe for concurrent use. Make one with [New].
type Index struct {
	mu   sync.Mutex
	last map[ID]uint64
	busy map[ID]bool
}

// New returns an empty index.
func New() *Index { return &Index{last: map[ID]uint64{}, busy: map[ID]bool{}} }

// Begin marks an object as busy if it is not busy and its last event is at the expected position.
// Otherwise, ok is false, last is the position of the last event, and busy reports whether the
// object is busy.
func (x *Index) Begin(id ID, expected uint64) (last uint64, busy, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last, busy = x.last[id], x.busy[id]
	if busy || last != expected {
		return last, busy, false
	}
	x.busy[id] = true
	return last, false, true
}

// Position returns the position of an object's last event, or 0 if there is none.
func (x *Index) Position(id ID) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last[id]
}

// BeginMarker marks a marker as busy. ok is false if the marker is already busy. A marker has no
// expected position.
func (x *Index) BeginMarker(id ID) (ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.busy[id] {
		return false
	}
	x.busy[id] = true
	return true
}

// End completes Begin or BeginMarker. stored is the new position, or 0 if nothing was stored.
func (x *Index) End(id ID, stored uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.busy, id)
	if stored != 0 {
		x.last[id] = stored
	}
}

// Remove completes Begin for an object that no longer has events.
func (x *Index) Remove(id ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.busy, id)
	delete(x.last, id)
}

// Found sets the position of an object's last event, unless the index has this position or a later
// one in the same partition, or the object is busy. It reports whether it set the position.
func (x *Index) Found(id ID, position uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.last[id]
	isLater := last < position || publish.Partition(last) != publish.Partition(position)
	if !isLater || x.busy[id] {
		return false
	}
	x.last[id] = position
	return true
}

// Lost removes the position of an object's last event, unless the object has another last event by
// now.
func (x *Index) Lost(id ID, position uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last[id] == position {
		delete(x.last, id)
	}
}
