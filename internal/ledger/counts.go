package ledger

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DirtyLen returns the number of dirty keys.
func (l *Ledger) DirtyLen() (n int) {
	for _, of := range l.DirtyByResource() {
		n += of
	}
	return n
}

// DirtyByResource returns the number of dirty keys of each resource that has any.
func (l *Ledger) DirtyByResource() map[schema.GroupResource]int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := map[schema.GroupResource]int{}
	for gr, t := range l.tables {
		if t.dirty > 0 {
			n[gr] = t.dirty
		}
	}
	return n
}

// Oldest returns when the oldest change that the bus lacks was reported, in whole seconds; the
// zero time if there is none. It is cheap: it looks at seconds, not at keys.
func (l *Ledger) Oldest() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.since) == 0 {
		return time.Time{}
	}
	return time.Unix(slices.Min(slices.Collect(maps.Keys(l.since))), 0)
}

// Between returns the number of keys that became dirty between two times, in whole seconds.
func (l *Ledger) Between(from, to time.Time) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := 0
	for second, count := range l.since {
		if second >= from.Unix() && second <= to.Unix() {
			n += count
		}
	}
	return n
}
