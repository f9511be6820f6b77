package simulate

import (
	"strconv"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/progress"
)

// reflector models client-go's reflector, queue and indexer for one watch of one resource. A
// change enters the queue when the watch delivers it, and the indexer when it leaves the queue.
// Then the handler receives it.
type reflector struct {
	watching bool
	listed   bool
	indexed  bool   // the first list has entered the indexer
	again    bool   // the next connection must list, even if the watch could resume
	notFirst bool   // the informer isn't the first one
	sent     uint64 // the last change that the watch delivered
	version  uint64 // the last version that the reflector has received
	applied  uint64 // the last version in the indexer
	life     int    // of the cluster, at the last list
	initial  int    // notifications of the first list that the handler hasn't received

	queue   []batch
	indexer [len(objectNames)]*event.Object
	notes   []note

	// gone contains the last states that the handler has received of deleted objects, by UID.
	gone map[string]*event.Object

	progress *progress.Progress // of the handler
	handled  int                // objects known to the handler
	selected int                // selected objects among them
}

func newReflector() reflector {
	return reflector{progress: &progress.Progress{}, gone: map[string]*event.Object{}}
}

// replaceReflector replaces the informer. If an object is deleted between the two informers while its
// event is in flight, neither informer reports the delete. A consistency point can then precede the
// delete until the event is acknowledged. This weakness is known, see docs/events.md.
func (p *process) replaceReflector() {
	p.reflector = newReflector()
	for _, f := range p.world.flights {
		if f.of == p {
			f.former, p.world.oracle.unknown[f.object] = true, true
		}
	}
}

// batch is a set of deltas that enter the indexer together: one change, a list, or none for a
// bookmark.
type batch struct {
	version uint64
	deltas  []delta
}

// delta is a change on its way to the indexer.
type delta struct {
	object  int
	is      *event.Object // nil if the object is gone
	last    *event.Object // the last state of an object that is gone
	initial bool
	listed  bool // from a list
}

// note is a change on its way to the handler.
type note struct {
	object      int
	before, is  *event.Object // nil if the object doesn't exist
	initial     bool
	isNew, gone bool
	fresh       bool // a list or a watch returned the state
}

// synced reports whether the handler has received the whole first list. An empty list counts when it has entered
// the indexer, because client-go handles a list as one item of its queue.
func (r *reflector) synced() bool { return r.indexed && r.initial == 0 }

// matches reports whether the API server delivers a state to the watch.
func (p *process) matches(s state) bool {
	return s.exists() && (p.config.selection != byLabel || s.label)
}

// render returns the object that the process's informer caches for a state.
func (p *process) render(object int, s state) *event.Object {
	o := p.world.render(object, s, p.config.form)
	if p.config.selection == byFilter && !s.label {
		unselected := *o
		unselected.Unselected, unselected.Body, unselected.Digest = true, event.Body{}, event.Digest{}
		return &unselected
	}
	return o
}

// connect starts a watch, with a list if the watch can't resume. The parameter stale is the maximum number of
// changes that the list may lack. The first list of an informer in a new epoch lacks none.
func (p *process) connect(stale uint8) {
	r, c := &p.reflector, &p.world.cluster
	if r.listed && !r.again && r.life == c.life && r.sent >= c.forgot {
		r.watching = true
		p.world.tell("  the watch continues after version %d", r.version)
		return
	}
	at := c.version
	if !r.listed && p.epoch > 0 {
		stale = 0
	}
	for n := len(c.history) - 1; stale > 0 && n >= 0; n-- {
		at, stale = c.history[n].version-1, stale-1
	}
	if r.listed && r.life == c.life {
		at = max(at, r.version)
	} else if r.listed {
		at = max(at, min(r.version, c.version))
	}
	p.world.tell("  it lists version %d of %d", at, c.version)
	initial := !r.listed
	var gone, listed []delta // client-go notifies the handler in this order
	for object, s := range c.at(at) {
		switch known := r.indexer[object]; {
		case p.matches(s):
			listed = append(listed, delta{object: object, is: p.render(object, s), initial: initial, listed: true})
		case known != nil:
			gone = append(gone, delta{object: object, last: known, listed: true})
		}
	}
	r.queue = append(r.queue, batch{at, append(gone, listed...)})
	r.progress.List(len(listed), true, true, p.now())
	if initial {
		r.initial = len(listed)
	}
	r.watching, r.listed, r.again = true, true, false
	r.sent, r.version, r.life = at, at, c.life
}

// nextShown returns the next change that the watch delivers, and skips the changes of objects that
// don't match the selector.
func (p *process) nextShown() (change, bool) {
	r, c := &p.reflector, &p.world.cluster
	for {
		h, ok := c.after(r.sent)
		if !ok || p.matches(h.before) || p.matches(h.after) {
			return h, ok
		}
		r.sent = h.version
	}
}

// show delivers the next change to the watch.
func (p *process) show() {
	r := &p.reflector
	h, _ := p.nextShown()
	r.sent, r.version = h.version, h.version
	r.progress.Watched(watch.Event{Type: watch.Modified}, false, p.now())
	if p.matches(h.after) {
		r.queue = append(r.queue, batch{h.version, []delta{{object: h.object, is: p.render(h.object, h.after)}}})
		return
	}
	last := h.before // with the version of the change
	last.version = h.version
	r.queue = append(r.queue, batch{h.version, []delta{{object: h.object, last: p.render(h.object, last)}}})
}

// bookmark delivers a bookmark with the current version.
func (p *process) bookmark() {
	r := &p.reflector
	r.version, r.sent = p.world.cluster.version, p.world.cluster.version
	r.queue = append(r.queue, batch{version: r.version})
	r.progress.Watched(watch.Event{Type: watch.Bookmark}, false, p.now())
}

// index moves the next batch from the queue to the indexer.
func (p *process) index() {
	r := &p.reflector
	next, first := r.queue[0], !r.indexed
	r.queue, r.applied, r.indexed = r.queue[1:], next.version, true
	for _, d := range next.deltas {
		before := r.indexer[d.object]
		r.indexer[d.object] = d.is
		if d.is != nil && !d.is.Unselected {
			p.latest[d.object] = d.is
		}
		switch {
		case d.is != nil:
			r.notes = append(r.notes, note{object: d.object, before: before, is: d.is, initial: d.initial, isNew: before == nil, fresh: true})
		case before != nil:
			r.notes = append(r.notes, note{object: d.object, before: d.last, gone: true, fresh: !d.listed})
		}
	}
	if first && r.initial == 0 { // the first list is empty
		p.noteSynced()
	}
}

// notify calls the handler.
func (p *process) notify() {
	r := &p.reflector
	n := r.notes[0]
	r.notes = r.notes[1:]
	of := n.is
	if n.gone {
		of = n.before
	}
	r.progress.Notified(of, n.fresh, p.now(), func() { p.handle(n) })
	if n.initial {
		if r.initial--; r.initial == 0 {
			p.noteSynced()
		}
	}
}

// handle handles a notification.
func (p *process) handle(n note) {
	r := &p.reflector
	count := func(o *event.Object, by int) {
		if r.handled += by; !o.Unselected {
			r.selected += by
		}
	}
	switch {
	case n.gone:
		count(n.before, -1)
		p.onDelete(n.object, n.before)
	case n.isNew:
		count(n.is, 1)
		p.onAdd(n.object, n.is, n.initial)
	default:
		count(n.before, -1)
		count(n.is, 1)
		p.onUpdate(n.object, n.before, n.is)
	}
}

// behind reports whether the handler hasn't yet received the current state of the cluster.
func (p *process) behind() bool {
	r := &p.reflector
	if p.isBehindSpaces() {
		return true
	}
	if !p.spaces.isCovered {
		return p.epochIsDue()
	}
	if !r.watching || len(r.queue) > 0 || len(r.notes) > 0 || r.again || p.epochIsDue() {
		return true
	}
	_, more := p.nextShown()
	return more
}

func versionText(v uint64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatUint(v, 10)
}
