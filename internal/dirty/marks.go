package dirty

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Mark is a moment of a resource. The bus has everything that was reported of the resource
// before it once [Keys.Reached] says so.
type Mark struct {
	resource   schema.GroupResource
	generation generation
}

// Point is a consistency point of a resource that the bus may not have reached yet. The bus
// reaches it with the mark.
type Point struct {
	event.Point
	Mark      Mark
	Selection uint64 // what was selected, if that can change without a notification
}

// generation numbers the time between two marks.
type generation uint64

// marks counts the entries of a resource by the generation of the first change that the bus
// lacks.
type marks struct {
	now   generation
	lacks map[schema.GroupResource]map[generation]int
}

// Mark marks the present moment of a resource.
func (d *Keys) Mark(gr schema.GroupResource) Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := Mark{gr, d.marks.now}
	d.marks.now++
	return m
}

// Reached reports whether the bus has everything that was reported of the resource before
// the mark.
func (d *Keys) Reached(m Mark) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for g := range d.marks.lacks[m.resource] { // few: one for each mark that is not reached
		if g <= m.generation {
			return false
		}
	}
	return true
}

// Has reports whether the bus may lack the present state of a key.
func (d *Keys) Has(key event.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.entries[key]
	return ok
}

// Since returns when the first change of a key was reported that the bus may lack, in whole
// seconds. It is false if the bus has the present state.
func (d *Keys) Since(key event.Key) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(e.since, 0), true
}

func (m *marks) count(key event.Key, g generation, n int) {
	gr := key.GroupResource()
	of := m.lacks[gr]
	if of == nil {
		of = map[generation]int{}
		m.lacks[gr] = of
	}
	if of[g] += n; of[g] == 0 {
		delete(of, g)
	}
	if len(of) == 0 {
		delete(m.lacks, gr) // resources come and go
	}
}

// covers reports whether the bus lacks only what was reported in the last generation, now
// that it has o: a state of that generation, or a later one. Otherwise the entry keeps its
// generation, so an object that changes all the time holds up a mark only until one of its
// later states is on the bus.
func (e *entry) covers(o *event.Object) bool {
	if e.last == 0 || len(e.tombstones) > 0 {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, e.boundary)
	return err == nil && order >= 0
}
