package workqueue

import (
	"hash/maphash"

	"github.com/kuberelay/kuberelay/internal/event"
)

// backlog is a FIFO list of distinct low-priority keys. A first sync or a resync adds a
// hundred thousand keys at once. A key takes 90 bytes here, and 350 in client-go's queue,
// with its set and map of times, our priorities and the handles.
type backlog struct {
	keys    [][]event.Key     // chunks of chunkSize slots; a removed key leaves the zero Key, which no object has
	head    uint64            // number of the first slot in keys[0]
	next    uint64            // number of the first slot that is not popped
	end     uint64            // number of the slot for the next push
	numbers map[uint64]uint64 // slot numbers by hash, which is smaller than the key
	hash    func(event.Key) uint64
	size    int
}

const chunkSize = 512

func newBacklog() *backlog {
	seed := maphash.MakeSeed()
	return &backlog{hash: func(k event.Key) uint64 { return maphash.Comparable(seed, k) }}
}

// push adds a key, and reports whether it was absent.
func (b *backlog) push(key event.Key) bool {
	hash := b.hash(key)
	number, taken := b.numbers[hash]
	if taken && *b.at(number) == key {
		return false
	}
	if (b.end-b.head)%chunkSize == 0 {
		b.keys = append(b.keys, make([]event.Key, 0, chunkSize))
	}
	last := &b.keys[len(b.keys)-1]
	*last = append(*last, key)
	if b.numbers == nil {
		b.numbers = map[uint64]uint64{}
	}
	if !taken { // on a hash collision, a key can be pushed twice, and is then handed out twice
		b.numbers[hash] = b.end
	}
	b.end++
	b.size++
	return true
}

// pop removes and returns the first key. The backlog must not be empty.
func (b *backlog) pop() event.Key {
	for {
		number, slot := b.next, b.at(b.next)
		key := *slot
		*slot = event.Key{}
		if b.next++; b.next-b.head == chunkSize {
			b.keys[0] = nil // frees the chunk before the slice is reallocated
			b.keys, b.head = b.keys[1:], b.next
		}
		if key != (event.Key{}) {
			b.forget(b.hash(key), number)
			return key
		}
	}
}

// remove removes a key at any position, and reports whether it was present.
func (b *backlog) remove(key event.Key) bool {
	if !b.has(key) {
		return false
	}
	hash := b.hash(key)
	number := b.numbers[hash]
	*b.at(number) = event.Key{}
	b.forget(hash, number)
	if b.end-b.next > 2*uint64(b.size)+chunkSize {
		b.compact()
	}
	return true
}

// compact removes the empty slots. Without it, a pause would add a slot for every key that
// changes after a resync, because nothing is popped.
func (b *backlog) compact() {
	old := b.keys
	b.reset()
	for _, chunk := range old {
		for _, key := range chunk {
			if key != (event.Key{}) {
				b.push(key)
			}
		}
	}
}

func (b *backlog) len() int { return b.size }

func (b *backlog) at(number uint64) *event.Key {
	n := number - b.head
	return &b.keys[n/chunkSize][n%chunkSize]
}

// forget updates the index and the size after a key was removed. An empty backlog keeps no
// memory.
func (b *backlog) forget(hash, number uint64) {
	if b.numbers[hash] == number {
		delete(b.numbers, hash)
	}
	if b.size--; b.size == 0 {
		b.reset()
	}
}

func (b *backlog) reset() { *b = backlog{hash: b.hash} }
