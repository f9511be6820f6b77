package ledger

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Mark is a moment in the history of a resource. Once [Ledger.Reached] returns true, the bus has
// every change of the resource that was reported before that moment.
type Mark struct {
	resource   schema.GroupResource
	generation generation
}

// Point is a consistency point of a resource that the bus might not have reached yet. The bus reaches
// the point when it reaches the mark.
type Point struct {
	event.Point
	Mark      Mark
	Selection uint64 // identifies the selection, which can change without a notification
}

// generation numbers the intervals between marks.
type generation uint64

// Mark returns a mark for the current moment of a resource.
func (l *Ledger) Mark(gr schema.GroupResource) Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := Mark{gr, l.now}
	l.now++
	return m
}

// Reached reports whether the bus has every change of the resource that was reported before the
// mark.
func (l *Ledger) Reached(m Mark) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.tables[m.resource]
	if t == nil {
		return true
	}
	for g := range t.lacks { // short: at most one generation for each mark that is not reached
		if g <= m.generation {
			return false
		}
	}
	return true
}

// Reports returns the number of the latest report of the informers: a state or a tombstone. An informer shows
// a state before it reports the state. So a state that you read from the informers after the call is at least
// as recent as every report up to that number.
func (l *Ledger) Reports() uint64 { return l.reports.Load() }
