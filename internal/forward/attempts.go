package forward

import (
	"slices"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
)

// attempts holds the UID of each key whose last publish ended without an answer from the
// bus. The bus may show that UID as existing, now or in a moment, although it never
// acknowledged the event. So the delete of that UID must be published. The next answer
// about the key resolves the attempt: after any answer, the bus is past the position that
// the attempt expected, and refuses the attempt.
//
// It also holds the entries of these publishes, removals included, to recognize them on the
// bus.
type attempts struct {
	mu      sync.Mutex
	uids    map[event.Key]string
	entries map[event.Key][]event.Acked
}

// maxAttempts bounds the remembered publishes of one key. A forgotten one that was stored
// counts as foreign until the event is compared with the cluster.
const maxAttempts = 64

// add records a publish without an answer.
func (a *attempts) add(k event.Key, acked event.Acked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.entries == nil {
		a.entries = map[event.Key][]event.Acked{}
	}
	acked.Time = 0 // has does not compare it
	all := a.entries[k]
	if !slices.Contains(all, acked) {
		a.entries[k] = append(all[max(0, len(all)-maxAttempts+1):], acked)
	}
}

// has reports whether an event on the bus can be an unresolved attempt of a key.
func (a *attempts) has(k event.Key, bus event.Acked) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	bus.Position, bus.Time = 0, 0
	return slices.Contains(a.entries[k], bus)
}

// uid returns the UID of the unresolved attempt of a key, or "".
func (a *attempts) uid(k event.Key) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.uids[k]
}

// of returns the UID of the unresolved attempt of a key, or "". It includes the removal of the
// object that the bus is known to show: the object may be selected again.
func (a *attempts) of(k event.Key, acked event.Acked) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if uid := a.uids[k]; uid != "" || !acked.Live() {
		return uid
	}
	if slices.ContainsFunc(a.entries[k], func(e event.Acked) bool { return e.UID == acked.UID && e.Deleted }) {
		return acked.UID
	}
	return ""
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
	delete(a.entries, k)
}
