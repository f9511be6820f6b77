package workqueue

import (
	"hash/maphash"

	"github.com/kuberelay/kuberelay/internal/event"
)

// backlog holds the keys that can wait until it is nearly their turn, each once, first in,
// first out. A first sync or a resync brings a hundred thousand at once, and one takes 90
// bytes here, and 350 in client-go's queue, which keeps it in a set and a map of times, with
// our lanes and handles.
type backlog struct {
	keys    [][]event.Key     // in pieces of pieceSize; the zero Key, which no object has, where one was taken out
	head    uint64            // number of the first slot in keys[0]
	next    uint64            // number of the first that is not popped
	end     uint64            // number of the one that is pushed next
	numbers map[uint64]uint64 // by hash, which is smaller than the key
	hash    func(event.Key) uint64
	size    int
}

const pieceSize = 512

func newBacklog() *backlog {
	seed := maphash.MakeSeed()
	return &backlog{hash: func(k event.Key) uint64 { return maphash.Comparable(seed, k) }}
}

// push adds a key, and tells whether it was not there.
func (b *backlog) push(key event.Key) bool {
	hash := b.hash(key)
	number, taken := b.numbers[hash]
	if taken && *b.at(number) == key {
		return false
	}
	if (b.end-b.head)%pieceSize == 0 {
		b.keys = append(b.keys, make([]event.Key, 0, pieceSize))
	}
	last := &b.keys[len(b.keys)-1]
	*last = append(*last, key)
	if b.numbers == nil {
		b.numbers = map[uint64]uint64{}
	}
	if !taken { // else another key has this hash: ours may be pushed twice, and is then handed out twice
		b.numbers[hash] = b.end
	}
	b.end++
	b.size++
	return true
}

// pop takes out the first key. There must be one.
func (b *backlog) pop() event.Key {
	for {
		number, slot := b.next, b.at(b.next)
		key := *slot
		*slot = event.Key{}
		if b.next++; b.next-b.head == pieceSize {
			b.keys[0] = nil // else it is kept until the slice moves
			b.keys, b.head = b.keys[1:], b.next
		}
		if key != (event.Key{}) {
			b.forget(b.hash(key), number)
			return key
		}
	}
}

// remove takes a key out, wherever it is.
func (b *backlog) remove(key event.Key) bool {
	hash := b.hash(key)
	number, ok := b.numbers[hash]
	if !ok || *b.at(number) != key {
		return false
	}
	*b.at(number) = event.Key{}
	b.forget(hash, number)
	if b.end-b.next > 2*uint64(b.size)+pieceSize {
		b.compact()
	}
	return true
}

// compact leaves no empty slots: in a pause, in which nothing is popped, there would be one
// more for every key that has changed since a resync.
func (b *backlog) compact() {
	old := b.keys
	b.reset()
	for _, piece := range old {
		for _, key := range piece {
			if key != (event.Key{}) {
				b.push(key)
			}
		}
	}
}

func (b *backlog) len() int { return b.size }

func (b *backlog) at(number uint64) *event.Key {
	n := number - b.head
	return &b.keys[n/pieceSize][n%pieceSize]
}

// forget counts off a key that was taken out. An empty backlog keeps no memory.
func (b *backlog) forget(hash, number uint64) {
	if b.numbers[hash] == number {
		delete(b.numbers, hash)
	}
	if b.size--; b.size == 0 {
		b.reset()
	}
}

func (b *backlog) reset() { *b = backlog{hash: b.hash} }
