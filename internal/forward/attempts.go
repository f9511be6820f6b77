package forward

import (
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
)

// attempts are the keys whose last publish ended without an answer: the bus may
// show the UID as existing, or may do so in a moment, although it was never
// acknowledged. Its delete must not be forgotten. An attempt is resolved by the
// next answer about the key: whatever that is, the bus is then past the position
// that the attempt expected, and refuses it from there on.
type attempts struct {
	mu   sync.Mutex
	uids map[event.Key]string
}

// uid gives the UID of an unresolved attempt, "" for none.
func (a *attempts) uid(k event.Key) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.uids[k]
}

func (a *attempts) unresolved(k event.Key, uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.uids == nil {
		a.uids = map[event.Key]string{}
	}
	a.uids[k] = uid
}

func (a *attempts) resolved(k event.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.uids, k)
}
