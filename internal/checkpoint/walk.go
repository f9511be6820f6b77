package checkpoint

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// walkBatch is the number of entries that walk reads per lock, which takes about 50 µs.
const walkBatch = 256

// walk calls f for each entry of a map that mu guards, until f returns false. It reports
// whether f always returned true. It calls f without the lock, and releases the lock after
// every batch so that writers make progress. It may or may not visit entries that are added
// or removed meanwhile.
func walk[V any](mu *sync.RWMutex, m map[name]V, f func(name, V) bool) bool {
	type pair struct {
		name  name
		value V
	}
	batch := make([]pair, 0, walkBatch)
	call := func() bool {
		for _, p := range batch {
			if !f(p.name, p.value) {
				return false
			}
		}
		batch = batch[:0]
		return true
	}
	mu.RLock()
	for n, v := range m {
		if batch = append(batch, pair{n, v}); len(batch) < walkBatch {
			continue
		}
		mu.RUnlock()
		if !call() {
			return false
		}
		mu.RLock() // Go allows changes to a map between two iterations of a range over it
	}
	mu.RUnlock()
	return call()
}

func (n name) key(gr schema.GroupResource) event.Key {
	return event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: n.namespace, Name: n.name}
}

// carryPacked is carry for a packed entry. It unpacks only an entry that has changed.
func (t *table) carryPacked(n name, was entry, known bool) (found bool) {
	is, ok := t.packed[n]
	same := was
	same.digest, same.state = is.digest, same.state.at(is.state.time())
	if !ok || same != is {
		return t.carry(n, was.unpack(), known)
	}
	is.digest = was.digest
	t.packed[n] = is
	return true
}

// carry completes a loaded entry with what was known of the object before. It reports
// whether there is one. The digest in the checkpoint can be newer than that of the event:
// after a change of the projection, the forwarder computes the digest of what is on the
// bus. Unless everything that the bus holds is known, an unexpected event is not foreign.
func (t *table) carry(n name, was event.Acked, known bool) (found bool) {
	is := t.get(n)
	switch {
	case is == event.Acked{}:
		return false
	case was.IsSameEvent(is):
		is.Digest, is.Foreign = was.Digest, was.Foreign
	case was.Foreign && was.Position == is.Position:
		is = was
	case known && is.Position >= was.Position:
		is = was.Before(is)
	}
	t.put(n, is)
	return true
}
