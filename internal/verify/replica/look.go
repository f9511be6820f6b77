package replica

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// Mark records that a listing found an object, and returns its last event.
func (f *Follower) Mark(k event.Key, listing uint32) Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.history.objects[k]; o != nil {
		o.mark = listing
	}
	return f.history.state(k)
}

// State returns the last event of an object.
func (f *Follower) State(k event.Key) Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.state(k)
}

// Live calls each for every object that exists on the bus, with its mark. It calls each
// without holding the lock.
func (f *Follower) Live(each func(k event.Key, mark uint32)) {
	type marked struct {
		key  event.Key
		mark uint32
	}
	var all []marked
	f.mu.Lock()
	for k, o := range f.history.objects {
		if o.last.Live() {
			all = append(all, marked{k, o.mark})
		}
	}
	f.mu.Unlock()
	for _, m := range all {
		each(m.key, m.mark)
	}
}

// Claim returns the UID of the cluster that owns the name, or "" if the bus has no claim.
func (f *Follower) Claim() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.claim
}

// Watch starts to record the events of an object.
func (f *Follower) Watch(k event.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history.watch(k)
}

// Unwatch stops recording the events of an object, and drops the recorded events.
func (f *Follower) Unwatch(k event.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.history.objects[k]
	o.watched, o.recent = false, nil
}

// Look is the state of a watched object on the bus.
type Look struct {
	Event       Event   // the last event
	Recent      []Event // events since the call of Watch, and the event before them
	LastDeleted uint64  // position of the last delete
	Point       Point   // consistency point of the object's resource
}

// Looks returns the state of watched objects on the bus at one moment.
func (f *Follower) Looks(keys iter.Seq[event.Key]) map[event.Key]Look {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[event.Key]Look{}
	points := map[schema.GroupResource]Point{}
	for k := range keys {
		gr := k.GroupResource()
		point, ok := points[gr]
		if !ok {
			point = f.history.points.of(gr, f.partitions(gr))
			points[gr] = point
		}
		o := f.history.objects[k]
		all[k] = Look{Event: f.history.state(k), Recent: slices.Clone(o.recent), LastDeleted: o.lastDeleted, Point: point}
	}
	return all
}

// Report adds to r the message count, the position that was read, and the problems of the messages.
func (f *Follower) Report(r *report.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Messages, r.Position = f.history.messages, f.read[publish.Log{}]
	r.Problems = append(r.Problems, f.history.problems...)
}
