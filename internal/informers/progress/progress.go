// Package progress tracks the progress of an informer's handler: the version up to which it has
// been notified of every change, and the number of objects that it knows. It has no I/O,
// goroutines, or clock.
package progress

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Progress tracks how far the handler of an informer is behind its watch. client-go notifies the
// handler after it has updated its store. It notifies in the order of the watch, once for each
// object that a list or a watch returned.
//
// While the Progress is locked, the handler waits.
type Progress struct {
	sync.Mutex
	received uint64    // number of objects that client-go received from lists and watches
	handled  uint64    // number of these objects for which the handler was called
	listed   uint64    // the value of received when the last list was complete
	empty    bool      // the last list had no objects
	version  string    // of the last object handled
	at       time.Time // when that object was handled
	shown    time.Time // when a list, a change, or a bookmark last arrived

	page int // number of objects in the incomplete list; client-go receives them when the list is complete
}

// List records a page of a list, or the start of a list. client-go notifies the handler of the
// objects of a list when the list is complete.
func (p *Progress) List(objects int, first, complete bool, now time.Time) {
	p.Lock()
	defer p.Unlock()
	if first {
		p.page = 0
	}
	p.page += objects
	if complete {
		p.complete(now)
	}
}

// complete records the end of a list. The caller holds the lock.
func (p *Progress) complete(now time.Time) {
	p.received += uint64(max(p.page, 0))
	p.empty = p.page <= 0
	p.listed, p.page, p.shown = p.received, 0, now
}

// Watched records an event of a watch. lists means that the watch is still returning its initial
// list. Watched returns false when that list ends, and lists otherwise.
func (p *Progress) Watched(e watch.Event, lists bool, now time.Time) (listsOn bool) {
	p.Lock()
	defer p.Unlock()
	switch {
	case e.Type == watch.Error:
	case !lists:
		if p.shown = now; e.Type != watch.Bookmark {
			p.received++
		}
	case e.Type == watch.Added:
		p.page++
	case e.Type == watch.Deleted:
		p.page--
	case e.Type == watch.Bookmark && IsListEnd(e):
		p.complete(now)
		return false
	}
	return lists
}

// Notified calls the handler for an object. fresh means that a list or a watch returned the object.
// client-go itself generates all other notifications.
func (p *Progress) Notified(o *event.Object, fresh bool, now time.Time, handle func()) {
	p.Lock()
	defer p.Unlock()
	handle()
	if fresh {
		p.handled++
		p.version, p.at = o.ResourceVersion, now
	}
}

// Reached returns the highest version up to which the handler has been notified of every change,
// and the time when that version arrived. stored is the version of client-go's store. The caller
// must hold the Progress locked while it reads stored and calls Reached: otherwise stored might be
// older than the objects that the handler knows. none means that the handler knows no object.
func (p *Progress) Reached(stored string, none bool) (version string, at time.Time, ok bool) {
	switch {
	case p.empty && p.handled == p.listed && !none: // the deletes after an empty list are not handled yet
		return "", time.Time{}, false
	case p.handled == p.received && stored != "":
		return stored, p.shown, true
	case p.handled > p.listed: // the objects of a list are not in the order of versions
		return p.version, p.at, true
	}
	return "", time.Time{}, false
}

// IsListEnd reports whether a bookmark follows the last object of a list.
func IsListEnd(e watch.Event) bool {
	o, err := meta.Accessor(e.Object)
	return err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
