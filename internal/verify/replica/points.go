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
	AsOf    time.Time // when the watch had shown that version
}

// points has the last consistency point of each resource in each partition.
//
// A point of before the history of the API server went back promises nothing of the history
// since. It names no epoch, so points stored before the first event of the latest epoch don't
// count.
type points struct {
	last   map[lane]pointAt // by the resource's name, and partition
	epochs map[schema.GroupResource]epoch
}

type pointAt struct {
	Point
	stored time.Time
}

type epoch struct {
	number uint16
	began  time.Time // when its first event was stored
}

func newPoints() points {
	return points{last: map[lane]pointAt{}, epochs: map[schema.GroupResource]epoch{}}
}

// add accepts the next point of a partition. A version that has no order is no point: nothing can
// be compared with it.
func (p points) add(w wire.Point, partition int, stored time.Time) {
	if isVersion(w.Version) {
		gr := schema.GroupResource{Group: w.Group, Resource: w.Resource}
		p.last[lane{gr.String(), partition}] = pointAt{Point{w.Version, w.AsOf}, stored}
	}
}

// addEvent accepts the epoch of an event. Partitions are read in any order.
func (p points) addEvent(e Event) {
	if e.Epoch == 0 {
		return // the first
	}
	gr := e.Key.GroupResource()
	switch at := p.epochs[gr]; {
	case e.Epoch > at.number, e.Epoch == at.number && e.Stored.Before(at.began):
		p.epochs[gr] = epoch{e.Epoch, e.Stored}
	}
}

// of returns the point that every one of the partitions has reached: the earliest of their last
// points.
func (p points) of(gr schema.GroupResource, partitions []int) (all Point) {
	for _, n := range partitions {
		at, ok := p.last[lane{gr.String(), n}]
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
	partitions := f.bus.partitions(gr)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.points.of(gr, partitions)
}
