package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// history folds the messages of a stream, in the order of their positions, into
// the last state of every object, and finds what breaks the order.
//
// A message may be missing for a good reason: the stream keeps depth messages of
// an object, and drops the oldest when another comes; the events of a deleted
// object are purged after a while. So two messages that we got one after the other
// are not always neighbours. Where a rule speaks of neighbours, and the first of
// the two is still on the stream when the second has come, nothing between them was
// dropped or purged, since that begins with the oldest: the rule is broken for
// certain. Else it is in doubt, and excused if depth messages of the object follow,
// which alone could have pushed out those between, or if a purge may have taken
// them.
//
// On Kafka compaction takes the part of dropping, and any later event of the object may
// be its reason, so depth is 1. There it may be known too that nothing is missing in
// the partition up to an event: then all rules hold for certain.
//
// It needs no clock and no bus: both are functions. It is not safe for use by
// several goroutines.
type history struct {
	depth     int           // messages that the stream keeps of an object
	retention time.Duration // how long a delete stays before it is purged
	now       func() time.Time

	// forgets: a delete may stay on the bus after the retention, when the writer does
	// not know of it any more. Repeats: an event may be there several times in a row.
	forgets, repeats bool

	// show is how people write a position.
	show func(position uint64) string

	// kept asks the bus whether it still has the object's message at a position.
	kept func(k event.Key, position uint64) (bool, error)

	objects  map[event.Key]*object
	claim    string            // UID of the cluster whose the name is, "" if the bus does not say
	markers  map[string]string // by subject, the id of the last
	messages int
	problems []Problem
	doubts   []doubt
}

// object is what the stream says of one key.
type object struct {
	last        busEvent
	lastDeleted uint64 // position of the last delete
	oldVersion  bool   // the last event is a delete whose version may be of an earlier epoch
	count       int    // events so far
	foreign     bool   // the last message is no event
	split       bool   // it has events in several partitions
	mark        uint32 // the last listing in which it was found

	watched bool       // recent is kept
	recent  []busEvent // without keys, the last at the end
}

// maxRecent bounds the events remembered of an object that is looked at closely.
const maxRecent = 64

// doubt is a broken rule that may have a good reason.
type doubt struct {
	key     event.Key
	problem Problem
	from    int  // object.count at the event that breaks it
	purge   bool // a purge would be a good reason as well
}

// add takes the next event of an object. An error is that of kept.
func (h *history) add(e busEvent, problems []string) error {
	h.messages++
	o := h.objects[e.Key]
	if o == nil {
		o = &object{}
		h.objects[e.Key] = o
	}
	for _, p := range problems {
		h.report(e, Malformed, p)
	}
	o.count++
	switch {
	case !h.isElsewhere(o, e):
		if err := h.check(o, e); err != nil {
			return err
		}
	case e.Epoch == o.last.Epoch && newer(o.last.Version, e.Version):
		return nil // partitions are read in no order
	}
	o.oldVersion = false
	if e.Type.Gone() {
		o.lastDeleted = e.Position
		// A delete that nobody saw has the version of the last state.
		o.oldVersion = o.last.UID == "" || e.Version == o.last.Version && e.Epoch != o.last.Epoch
	}
	e.Key = event.Key{} // held by the map
	o.last, o.foreign = e, false
	if o.watched {
		o.remember(e)
	}
	return nil
}

func (o *object) remember(e busEvent) {
	if len(o.recent) == maxRecent {
		o.recent = slices.Delete(o.recent, 0, maxRecent/2)
	}
	o.recent = append(o.recent, e)
}

// isElsewhere reports, once, that an object has events in several partitions, between
// which there is no order.
func (h *history) isElsewhere(o *object, e busEvent) bool {
	was, is := publish.Partition(o.last.Position), publish.Partition(e.Position)
	if o.last.Position == 0 || was == is {
		return false
	}
	if !o.split {
		o.split = true
		h.report(e, Misordered, fmt.Sprintf("its events are in the partitions %d and %d", was, is))
	}
	return true
}

// addTombstone takes what says that the bus has no event of the object any more.
func (h *history) addTombstone(k event.Key, position uint64) {
	h.messages++
	o := h.objects[k]
	if o == nil {
		return
	}
	if o.last.live() {
		h.report(busEvent{Key: k, Position: position, Version: o.last.Version}, Misordered, "a tombstone follows an event that shows the object as existing")
	}
	o.last, o.oldVersion, o.foreign = busEvent{}, false, false
}

// addForeign takes a message that is no event of ours, k being what its subject
// says, which name names.
func (h *history) addForeign(k event.Key, name string, position uint64, err error) {
	h.messages++
	p := Problem{Kind: Malformed, Position: position, Detail: fmt.Sprintf("%s is no event of ours: %v", name, err)}
	if k.Resource != "" {
		p.setKey(k)
		o := h.objects[k]
		if o == nil {
			o = &object{}
			h.objects[k] = o
		}
		o.foreign = true
	}
	h.problems = append(h.problems, p)
}

// addMarker takes the next marker of a resource, a writer or the cluster.
func (h *history) addMarker(k event.Key, subject, id string, t event.Type, position uint64) {
	h.messages++
	p := Problem{Position: position}
	p.setKey(k)
	switch t {
	case event.SnapshotStarted, event.SnapshotCompleted, event.WriterStarted, event.ClusterClaimed:
	default:
		p.Kind, p.Detail = Malformed, fmt.Sprintf("unknown type %q of a marker", t)
		h.problems = append(h.problems, p)
	}
	if h.markers[subject] == id && !h.repeats {
		p.Kind, p.Detail = Misordered, fmt.Sprintf("the marker %q is there twice", id)
		h.problems = append(h.problems, p)
	}
	h.markers[subject] = id
}

// check compares an event with the one before it. At most one rule is reported.
func (h *history) check(o *object, e busEvent) error {
	last := o.last
	if o.foreign { // whoever came next could not know what was before
		last = busEvent{}
	}
	switch {
	case o.foreign && o.last.UID != "" && e.begins():
		return nil
	case last.UID == "":
		if !e.begins() && !o.tellsOfOneBefore(e) {
			h.suspect(o, e, e.Whole, false, fmt.Sprintf("the first event of uid %q is of type %s", e.UID, e.Type.Short()))
		}
		return nil
	case h.repeats && e.ID == last.ID && e.Epoch == last.Epoch:
		return nil
	}
	if o.oldVersion {
		last.Version = "" // not to be compared
	}
	// The writer of e saw nothing of the object: the delete was gone, or forgotten.
	anew := last.Type.Gone() && last.UID == e.UID && e.begins() && e.Previous == ""
	forgotten := anew && h.forgets && e.Stored.Sub(last.Stored) >= h.retention-time.Second // it goes by whole seconds
	e.Again = e.Again || forgotten
	if detail := fallen(last, e); detail != "" {
		h.report(e, Misordered, detail)
		return nil
	}
	detail, purge := follows(o.last, e)
	if detail == "" || forgotten {
		return nil
	}
	certain := e.Whole
	if !certain {
		var err error
		if certain, err = h.kept(e.Key, last.Position); err != nil {
			return err
		}
	}
	if anew && !certain {
		return nil
	}
	purge = purge && h.now().Sub(last.Stored) >= h.retention
	h.suspect(o, e, certain, purge, detail+", after the event at "+h.show(last.Position))
	return nil
}

func (h *history) report(e busEvent, kind Kind, detail string) {
	h.problems = append(h.problems, busProblem(e, kind, detail))
}

// suspect reports a broken rule if it is certain, and else keeps it in mind.
func (h *history) suspect(o *object, e busEvent, certain, purge bool, detail string) {
	if certain {
		h.report(e, Misordered, detail)
		return
	}
	h.doubts = append(h.doubts, doubt{e.Key, busProblem(e, Misordered, detail), o.count, purge})
}

func busProblem(e busEvent, kind Kind, detail string) Problem {
	p := Problem{Kind: kind, Bus: e.Version, Position: e.Position, Detail: detail}
	p.setKey(e.Key)
	return p
}

// excused tells whether a doubt has a good reason by now. More messages may bring
// one.
func (h *history) excused(d doubt) bool {
	return d.purge || h.objects[d.key].count-d.from+1 >= h.depth
}

// settleDoubts reports the doubts up to a position that have no good reason, and
// forgets all of them. It is for the end, when every object in doubt has been read
// to its last message.
func (h *history) settleDoubts(upTo uint64) {
	for _, d := range h.doubts {
		if d.problem.Position <= upTo && !h.excused(d) {
			h.problems = append(h.problems, d.problem)
		}
	}
	h.doubts = nil
}

// state gives the last event of a key, the zero value if there is none.
func (h *history) state(k event.Key) busEvent {
	o := h.objects[k]
	if o == nil {
		return busEvent{}
	}
	e := o.last
	e.Key = k
	return e
}

// watch makes history remember the next events of a key one by one.
func (h *history) watch(k event.Key) {
	o := h.objects[k]
	if o == nil {
		o = &object{}
		h.objects[k] = o
	}
	if !o.watched {
		o.watched = true
		if o.last.UID != "" {
			o.recent = []busEvent{o.last}
		}
	}
}
