package replica

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// history reads the messages of a bus in the order of their positions. It keeps the last state of
// every object, and finds violations of the order.
//
// A message can be missing for a legitimate reason. The stream keeps depth messages of an object,
// and drops the oldest when another arrives. The forwarder purges the events of a deleted object
// after the retention. So two consecutive messages that history receives aren't always neighbors:
// messages between them can be missing.
//
// A violation of a rule about neighbors is certain if the first of the two messages is still on the
// stream when the second arrives, because dropping and purging begin with the oldest message.
// Otherwise, the violation is a doubt. A doubt is excused if a purge might have removed a message in
// between. It is also excused if depth messages of the object follow, because only then can the
// stream have dropped a message in between.
//
// On Kafka, compaction takes the place of dropping. Any later event of the object can be the reason
// for compaction, so depth is 1. If the offsets prove that nothing is missing in the partition up
// to an event, every violation is certain.
//
// history has no clock and no connection to the bus. It calls the functions now and kept instead.
// It is not safe for concurrent use.
type history struct {
	depth     int           // number of messages that the stream keeps of an object
	retention time.Duration // how long a delete stays at least before it is purged
	now       func() time.Time

	// forgets means that the writer forgets a delete after the retention, although the delete can stay on
	// the bus. repeats means that an event can be on the bus several times in a row.
	forgets, repeats bool

	// show formats a position for people.
	show func(position uint64) string

	// kept reports whether the bus still has the object's message at a position.
	kept func(k event.Key, position uint64) (bool, error)

	objects  map[event.Key]*object
	claim    string               // UID of the cluster that owns the name; "" without a claim
	markers  map[markerLog]string // the id of the last marker
	points   points
	messages int
	problems []report.Problem
	doubts   map[event.Key][]doubt

	// open contains the indexes of the problems that a repair of the object can turn into foreign
	// events. With these indexes, a repair does not read all problems. A bus can have many repairs
	// and problems.
	open map[event.Key][]int
}

// object is the state of one key on the bus.
type object struct {
	last        Event
	lastDeleted uint64 // position of the last delete
	oldVersion  bool   // the last event is a delete whose version might belong to an earlier epoch
	count       int    // events so far
	foreign     bool   // the last message isn't an event
	split       bool   // the object has events in several partitions
	mark        uint32 // the last listing that had the object

	watched bool    // record the events in recent
	recent  []Event // without keys, in order
}

// maxRecent is the maximum number of events that history remembers of a watched object.
const maxRecent = 64

// add accepts the next event of an object. It returns an error only if kept does.
func (h *history) add(e Event, problems []string) error {
	h.messages++
	h.points.addEvent(e)
	o := h.object(e.Key)
	for _, p := range problems {
		h.report(e, report.Malformed, p)
	}
	o.count++
	switch {
	case e.Repairs != 0 && h.repair(o, e):
	case !h.isElsewhere(o, e):
		check := h.check
		if e.Repairs != 0 {
			check = h.checkRepair
		}
		if err := check(o, e); err != nil {
			return err
		}
	case e.Epoch == o.last.Epoch && Newer(o.last.Version, e.Version):
		return nil // partitions are read in any order
	}
	o.oldVersion = false
	if e.Type.Removes() {
		o.lastDeleted = e.Position
		// A delete that the watch missed has the version of the last state.
		o.oldVersion = o.last.UID == "" || e.Version == o.last.Version && e.Epoch != o.last.Epoch
	}
	e.Key = event.Key{} // the map's key already holds it
	o.last, o.foreign = e, false
	if o.watched {
		o.remember(e)
	}
	return nil
}

func (o *object) remember(e Event) {
	if len(o.recent) == maxRecent {
		o.recent = slices.Delete(o.recent, 0, maxRecent/2)
	}
	o.recent = append(o.recent, e)
}

// isElsewhere reports whether an event is in another partition than the object's last event. It
// records this problem once for each object. Events in different partitions have no order.
func (h *history) isElsewhere(o *object, e Event) bool {
	was, is := publish.Partition(o.last.Position), publish.Partition(e.Position)
	if o.last.Position == 0 || was == is {
		return false
	}
	if !o.split {
		o.split = true
		h.report(e, report.Misordered, fmt.Sprintf("its events are in the partitions %d and %d", was, is))
	}
	return true
}

// repair handles e, which repairs a foreign message. Another writer might have published several messages,
// so repair turns the problems of all messages up to the foreign one into foreign events, and drops the
// doubts about them. If history hasn't seen the foreign message, the bus might have lost it, so repair
// changes nothing and returns false.
func (h *history) repair(o *object, e Event) bool {
	of := func(position uint64) bool {
		return position <= e.Repairs && publish.Partition(position) == publish.Partition(e.Repairs)
	}
	open := h.open[e.Key]
	reported := slices.ContainsFunc(open, func(i int) bool { return h.problems[i].Position == e.Repairs })
	if !reported && o.last.Position != e.Repairs {
		return false
	}
	h.open[e.Key] = slices.DeleteFunc(open, func(i int) bool {
		repaired := of(h.problems[i].Position)
		if repaired {
			h.problems[i].Kind = report.Foreign
		}
		return repaired
	})
	h.doubts[e.Key] = slices.DeleteFunc(h.doubts[e.Key], func(d doubt) bool { return of(d.problem.Position) })
	if !reported {
		h.report(Event{Key: e.Key, Position: e.Repairs, Version: o.last.Version}, report.Foreign, "another writer published the event; the forwarder published the state of the object again after it")
	}
	return true
}

// addTombstone accepts a tombstone. A tombstone directly after a delete is part of that delete, and the
// writer remembers the delete. After any other tombstone, the bus no longer has an event of the
// object. Compaction might have removed a delete before its tombstone, unless whole is set.
// addTombstone returns an error only if kept does.
func (h *history) addTombstone(k event.Key, position uint64, whole bool) (err error) {
	h.messages++
	o := h.objects[k]
	if o == nil || o.last.Type.Removes() && o.last.Position+1 == position && !o.foreign {
		return nil
	}
	if o.last.Live() {
		if !whole {
			if whole, err = h.kept(k, o.last.Position); err != nil {
				return err
			}
		}
		if whole {
			h.report(Event{Key: k, Position: position, Version: o.last.Version}, report.Misordered, "a tombstone follows an event that shows the object as existing")
		}
	}
	o.last, o.oldVersion, o.foreign = Event{}, false, false
	return nil
}

// maxDetail is the maximum length in bytes of a problem's text. Without a limit, the text could quote a
// message of many megabytes.
const maxDetail = 1000

// keep stores a problem. k is the object that the problem is about, or the zero value if there is
// none.
func (h *history) keep(k event.Key, p report.Problem) {
	if len(p.Detail) > maxDetail {
		p.Detail = strings.ToValidUTF8(p.Detail[:maxDetail], "") + "…"
	}
	if k.Name != "" && (p.Kind == report.Misordered || p.Kind == report.Malformed) {
		h.open[k] = append(h.open[k], len(h.problems))
	}
	h.problems = append(h.problems, p)
}

// addForeign accepts a message that isn't a Kuberelay event. k is the object that its subject
// names. name describes the message.
func (h *history) addForeign(k event.Key, name string, position uint64, err error) {
	h.messages++
	p := report.Problem{Kind: report.Malformed, Position: position, Detail: fmt.Sprintf("%s is not an event of Kuberelay: %v", name, err)}
	if k.Resource != "" {
		p.SetKey(k)
		h.object(k).foreign = true
	}
	h.keep(k, p)
}

// addMarker accepts the next marker of a resource, a writer, or the cluster.
func (h *history) addMarker(k event.Key, subject, id string, position uint64, problems []string) {
	h.messages++
	p := report.Problem{Position: position}
	p.SetKey(k)
	for _, detail := range problems {
		p.Kind, p.Detail = report.Malformed, detail
		h.keep(k, p)
	}
	at := markerLog{subject, publish.Partition(position)}
	if h.markers[at] == id && !h.repeats {
		p.Kind, p.Detail = report.Misordered, fmt.Sprintf("the marker %q occurs twice", id)
		h.keep(k, p)
	}
	h.markers[at] = id
}

// markerLog identifies the log of a marker: a subject on NATS, or a key in one partition on Kafka. history
// checks the markers of each log separately, because on Kafka each consistency point is in every partition.
type markerLog struct {
	subject   string
	partition int
}

// object returns the state of a key, and creates it if necessary.
func (h *history) object(k event.Key) *object {
	o := h.objects[k]
	if o == nil {
		o = &object{}
		h.objects[k] = o
	}
	return o
}

// state returns the last event of a key, or the zero value.
func (h *history) state(k event.Key) Event {
	o := h.objects[k]
	if o == nil {
		return Event{}
	}
	e := o.last
	e.Key = k
	return e
}

// watch makes history record the events of a key from now on.
func (h *history) watch(k event.Key) {
	o := h.object(k)
	if !o.watched {
		o.watched = true
		if o.last.UID != "" {
			o.recent = []Event{o.last}
		}
	}
}
