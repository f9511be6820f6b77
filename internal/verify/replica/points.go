package replica

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// Point is a consistency point of a resource: the bus has every change up to Version, in every
// partition. The zero value means none.
type Point struct {
	Version string
	AsOf    time.Time // time at which the watch had shown everything up to Version
}

// points records the last consistency point of each resource in each partition.
//
// If the API server's history is rolled back, earlier points are void. A point names no epoch.
// Therefore, a point that was stored before the first event of the latest epoch doesn't count.
type points struct {
	last   map[markerLog]pointAt // last point of each resource in each partition
	epochs map[schema.GroupResource]epoch
}

type pointAt struct {
	Point
	stored time.Time
}

type epoch struct {
	number uint16
	began  time.Time // when the first event of the epoch was stored
}

func newPoints() points {
	return points{last: map[markerLog]pointAt{}, epochs: map[schema.GroupResource]epoch{}}
}

// add accepts the next point of a partition. It ignores a point whose version is not a number,
// because such versions have no order.
func (p points) add(w wire.Point, partition int, stored time.Time) {
	if wire.IsNumber(w.Version) {
		gr := schema.GroupResource{Group: w.Group, Resource: w.Resource}
		p.last[markerLog{gr.String(), partition}] = pointAt{Point{w.Version, w.AsOf}, stored}
	}
}

// addEvent records the epoch of an event, and when the first event of the epoch was stored.
// Partitions are read in any order, so the first event can arrive later than others.
func (p points) addEvent(e Event) {
	if e.Epoch == 0 {
		return // no points precede the first epoch
	}
	gr := e.Key.GroupResource()
	switch at := p.epochs[gr]; {
	case e.Epoch > at.number, e.Epoch == at.number && e.Stored.Before(at.began):
		p.epochs[gr] = epoch{e.Epoch, e.Stored}
	}
}

// of returns the point that all of the partitions have reached: the earliest of their last points.
func (p points) of(gr schema.GroupResource, partitions []int) (all Point) {
	for _, n := range partitions {
		at, ok := p.last[markerLog{gr.String(), n}]
		if !ok || at.stored.Before(p.epochs[gr].began) {
			return Point{}
		}
		if all.Version == "" || Newer(all.Version, at.Version) {
			all = at.Point
		}
	}
	return all
}

// Point returns the latest consistency point of a resource that was read.
func (f *Follower) Point(gr schema.GroupResource) Point {
	partitions := f.partitions(gr)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.points.of(gr, partitions)
}
