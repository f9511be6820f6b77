package dirty

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Include records that a state belongs to the first sync, which begins after the state was
// reported. Of a key that is dirty already, a later state may have been reported since it
// was read, or the end of the object.
func (d *Keys) Include(key event.Key, o *event.Object, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[key]; ok && e.has(string(o.UID)) {
		return
	}
	e := d.entry(key, now)
	if e.uid == "" {
		e.uid, e.version, e.observed = string(o.UID), o.ResourceVersion, now
		e.last, e.boundary = d.marks.now, o.ResourceVersion
	}
	e.cause = event.CauseSnapshot
	d.addToFirstSync(key, e)
}

// MarkUnpublishable marks the present state of a key, and lets a first sync be complete
// without it.
func (d *Keys) MarkUnpublishable(key event.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[key]; ok {
		e.unpublishable = true
		d.removeFromFirstSync(key, e)
	}
}

// FirstSyncLeft returns the number of keys of the first sync of a resource that the bus has
// not acknowledged.
func (d *Keys) FirstSyncLeft(gr schema.GroupResource) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.initial[gr]
}

// ForgetFirstSyncs ends every first sync.
func (d *Keys) ForgetFirstSyncs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		e.firstSync = false
	}
	clear(d.initial)
}

func (d *Keys) addToFirstSync(key event.Key, e *entry) {
	if !e.firstSync {
		e.firstSync = true
		d.initial[key.GroupResource()]++
	}
}

func (d *Keys) removeFromFirstSync(key event.Key, e *entry) {
	if !e.firstSync {
		return
	}
	e.firstSync = false
	gr := key.GroupResource()
	if d.initial[gr]--; d.initial[gr] == 0 {
		delete(d.initial, gr) // resources come and go
	}
}

// Len returns the number of dirty keys.
func (d *Keys) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries)
}

// LenByResource returns the number of dirty keys of each resource that has any.
func (d *Keys) LenByResource() map[schema.GroupResource]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := map[schema.GroupResource]int{}
	for gr, of := range d.marks.lacks {
		for _, count := range of {
			n[gr] += count
		}
	}
	return n
}

// Oldest returns when the oldest change that the bus lacks was reported, to a second; the
// zero time if there is none. It looks at each second in which a key became dirty, not at
// each key.
func (d *Keys) Oldest() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.since) == 0 {
		return time.Time{}
	}
	return time.Unix(slices.Min(slices.Collect(maps.Keys(d.since))), 0)
}

// Between returns the number of keys that became dirty between two times, in whole seconds.
func (d *Keys) Between(from, to time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for second, count := range d.since {
		if second >= from.Unix() && second <= to.Unix() {
			n += count
		}
	}
	return n
}

func (d *Keys) countSince(second int64, n int) {
	if d.since[second] += n; d.since[second] == 0 {
		delete(d.since, second)
	}
}
