package torture

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
)

// streamCheck looks at every message that the stream has ever shown, those
// included that have been dropped or purged since, which verify cannot see. It
// shares no code with verify or the forwarder.
type streamCheck struct {
	world *world

	// missed: some messages were gone before they could be read, so that it is not
	// known which are neighbours.
	missed bool
	read   map[uint64]bool // sequences in a stream of NATS

	// existing are the UIDs that are in the cluster now.
	existing map[string]bool

	seen      map[string]harness.Received // by id
	last      map[string]harness.Received // by subject
	completed map[string]harness.Received // markers by group and resource
	lost      map[string]harness.Received // the last by subject, of those that a fault took
	former    map[string]harness.Received // the last by subject, of a topic before this one
	life      int                         // of the topic
	writers   map[int]harness.Producer    // by partition, that of the last marker
	left      map[string]int              // how often a uid was deselected
	problems  []string
}

// anew begins with a topic that has nothing of the one before.
func (c *streamCheck) anew(life int) {
	if c.former == nil {
		c.former = map[string]harness.Received{}
	}
	maps.Copy(c.former, c.last)
	c.seen, c.last, c.completed = map[string]harness.Received{}, map[string]harness.Received{}, map[string]harness.Received{}
	c.lost, c.life, c.writers = map[string]harness.Received{}, life, map[int]harness.Producer{}
}

// checkStream gives all that is wrong with the messages. Those that a fault took
// from the bus are left out: what came after need not know of them.
func (w *world) checkStream(all []harness.Received, missed bool, existing map[string]bool) []string {
	c := streamCheck{world: w, missed: missed, existing: existing, left: map[string]int{}, read: map[uint64]bool{}}
	for _, m := range all {
		c.read[m.Sequence] = true
	}
	c.anew(0)
	back := w.wentBack
	for _, m := range all {
		for len(back) > 0 && back[0].from < m.Sequence {
			c.goBack(all, back[0])
			back = back[1:]
		}
		if m.Life != c.life {
			c.anew(m.Life)
		}
		if w.settings.sink == onKafka {
			c.producer(m)
		}
		switch {
		case w.lost[m.Place]:
			c.lost[m.Subject] = m
		case isMarker(m):
			c.marker(m)
		case m.Body == nil:
			c.tombstone(m)
		case c.repeats(m):
		default:
			c.event(m)
			c.seen[m.Attributes["id"]], c.last[m.Subject] = m, m
		}
	}
	return c.problems
}

// goBack forgets the messages of a subject after the one that the stream has shown
// as the last since. That one may have been gone before it could be read.
func (c *streamCheck) goBack(all []harness.Received, b wentBack) {
	delete(c.last, b.subject)
	for _, m := range all {
		switch {
		case m.Subject != b.subject || m.Sequence > b.from:
		case m.Sequence == b.to:
			c.last[b.subject] = m
		case m.Sequence > b.to:
			delete(c.seen, m.Attributes["id"])
		}
	}
}

func isMarker(m harness.Received) bool {
	return strings.Contains(m.Subject, "._control.") || strings.Contains(m.Subject, "/_control/")
}

// resourceOf is the group and resource that a subject, or a record's key, names.
func resourceOf(m harness.Received) string {
	tokens := strings.Split(m.Subject, "/")
	if m.Life == 0 {
		tokens = strings.Split(m.Subject, ".")[1:]
	}
	if isMarker(m) {
		tokens = tokens[2:]
	}
	return strings.Join(tokens[1:3], ".")
}

func (c *streamCheck) wrong(m harness.Received, format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf("stream: %s at %s: %s", m.Subject, m.Place, fmt.Sprintf(format, args...)))
}

// producer looks at who wrote a record of Kafka: a writer begins with its marker, and
// from there on nobody else may write to the partition.
func (c *streamCheck) producer(m harness.Received) {
	before, began := c.writers[m.Partition]
	switch idempotent := c.world.settings.kafka.idempotent; {
	case idempotent == (m.Producer == harness.Producer{}):
		c.wrong(m, "the producer is %v", m.Producer)
	case m.Kind() == "started" && strings.Contains(m.Attributes["type"], ".writer."):
		if idempotent && began && m.Producer.ID == before.ID && m.Producer.Epoch <= before.Epoch {
			c.wrong(m, "the marker of producer %v after that of %v", m.Producer, before)
		}
		c.writers[m.Partition] = m.Producer
	case !began:
		c.wrong(m, "no writer's marker is before it")
	case m.Producer != before:
		c.wrong(m, "written by producer %v after the marker of %v", m.Producer, before)
	}
}

// repeats tells whether a record repeats the one before it of its object, where that
// may be.
func (c *streamCheck) repeats(m harness.Received) bool {
	last, ok := c.last[m.Subject]
	return ok && c.world.mayRepeat() && last.Attributes["id"] == m.Attributes["id"] && last.Attributes["sequence"] == m.Attributes["sequence"]
}

// tombstone looks at what lets a compacted topic forget an object.
func (c *streamCheck) tombstone(m harness.Received) {
	last, ok := c.last[m.Subject]
	switch {
	case !c.world.settings.kafka.tombstones || !c.world.purges():
		c.wrong(m, "a tombstone")
	case last.Body == nil && c.world.mayRepeat():
	case ok && !gone(last), !ok && !c.missed:
		c.wrong(m, "a tombstone after type %q at %s", last.Kind(), last.Place)
	case ok && last.Partition != m.Partition:
		c.wrong(m, "a tombstone in another partition than the delete at %s", last.Place)
	}
}

func (c *streamCheck) marker(m harness.Received) {
	id := m.Attributes["id"]
	if before, ok := c.seen[id]; ok && !c.world.mayRepeat() {
		c.wrong(m, "the marker %q is at %s already", id, before.Place)
	}
	c.seen[id] = m
	if m.Kind() == "completed" {
		c.completed[resourceOf(m)] = m
	}
}

// followsUnread tells whether the event says that it follows one of its object which was
// gone before it could be read.
func (c *streamCheck) followsUnread(m harness.Received) bool {
	_, number, follows := strings.Cut(m.Attributes["id"], ".selected.")
	before, err := strconv.ParseUint(number, 10, 64)
	return follows && err == nil && c.missed && m.Life == 0 && before < m.Sequence && !c.read[before]
}

func (c *streamCheck) event(m harness.Received) {
	if c.followsUnread(m) {
		delete(c.last, m.Subject)
	}
	c.identity(m)
	uid, version := m.Attributes["uid"], m.Attributes["sequence"]
	if before, ok := c.seen[m.Attributes["id"]]; ok && !c.mayReturn(before, m) {
		c.wrong(m, "id %q is at %s already", m.Attributes["id"], before.Place)
	}
	if done, ok := c.completed[resourceOf(m)]; ok && m.Kind() == "snapshot" && done.Partition == m.Partition && !c.world.twoNodes() {
		c.wrong(m, "a snapshot after the completed marker at %s", done.Place)
	}
	c.selection(m)
	if m.Kind() == "deleted" && c.existing[uid] && !c.mayLeave(m) {
		c.wrong(m, "uid %s was deleted with cause %s, and exists", uid, m.Attributes["cause"])
	}
	last, ok := c.last[m.Subject]
	if ok && last.Partition != m.Partition {
		c.wrong(m, "the event before is in another partition: %s", last.Place)
	}
	if !ok {
		lost, ok := c.lost[m.Subject]
		if ok && !begins(m) && (c.world.settings.sink == onKafka || gone(m)) {
			// Who reads along must see the delete. Of what else may be, Kafka refuses
			// nothing before the forwarder has read the checkpoint again.
			c.neighbours(lost, m, uid == lost.Attributes["uid"])
			return
		}
		former, ok := c.former[m.Subject]
		if ok && gone(m) && !gone(former) && former.Attributes["uid"] == uid {
			return // who reads along must see the delete
		}
		if !c.missed && !begins(m) {
			c.wrong(m, "the first event is of type %s", m.Kind())
		}
		return
	}
	switch order := strings.Compare(version, last.Attributes["sequence"]); {
	case order < 0:
		c.wrong(m, "sequence %s after %s at %s", version, last.Attributes["sequence"], last.Place)
	case order == 0 && !gone(m) && last.Kind() != "deselected" && !strings.Contains(m.Attributes["id"], ".projected."):
		c.wrong(m, "sequence %s is at %s already", version, last.Place)
	}
	if !c.missed {
		c.neighbours(last, m, uid == last.Attributes["uid"])
		c.change(last, m)
	}
}

func begins(m harness.Received) bool { return m.Kind() == "created" || m.Kind() == "snapshot" }

// neighbours compares two events of an object that followed one another.
func (c *streamCheck) neighbours(last, m harness.Received, same bool) {
	previous := m.Attributes["previousversion"]
	switch gone := gone(last); {
	case !same && !gone:
		c.wrong(m, "uid %s after uid %s at %s, which was not deleted", m.Attributes["uid"], last.Attributes["uid"], last.Place)
	case gone != begins(m):
		c.wrong(m, "type %s after type %s at %s", m.Kind(), last.Kind(), last.Place)
	case same && last.Kind() == "deleted" && !c.world.mayReturn():
		c.wrong(m, "uid %s was deleted at %s and exists", m.Attributes["uid"], last.Place)
	case !same && previous != "":
		c.wrong(m, "previousversion %q in the first event of a uid", previous)
	case same && previous != last.Attributes["resourceversion"] && (previous != "" || !gone || !c.world.purges()):
		c.wrong(m, "previousversion %q, but %q is before it at %s", previous, last.Attributes["resourceversion"], last.Place)
	}
}

// mayReturn tells whether an id may come a second time: the delete of what has come
// back in between, and any version after the cluster's history went back.
func (c *streamCheck) mayReturn(before, m harness.Received) bool {
	epoch := func(m harness.Received) string { e, _, _ := strings.Cut(m.Attributes["sequence"], "."); return e }
	if epoch(before) != epoch(m) {
		return true
	}
	if c.missed && c.world.settings.labels && m.Kind() == "deleted" {
		return true // what came in between may have been pushed out before it was read
	}
	last := c.last[m.Subject]
	if c.world.purges() && begins(m) && last.Kind() == "deselected" {
		return true // that it was there before may have been forgotten
	}
	return m.Kind() == "deleted" && !gone(last) && last.Attributes["uid"] == m.Attributes["uid"]
}

// identity compares what an event says of its object in different places, and with
// what the API server answered when the object came into that state.
func (c *streamCheck) identity(m harness.Received) {
	uid, version := m.Attributes["uid"], m.Attributes["resourceversion"]
	if got, want := m.Attributes["id"], c.ids(m); !slices.Contains(want, got) {
		c.wrong(m, "id %q, want %q", got, want)
	}
	data, err := objectOf(m)
	if err != nil {
		c.wrong(m, "data: %v", err)
		return
	}
	c.shape(m, data)
	metadata, _ := data["metadata"].(map[string]any)
	if metadata["uid"] != uid || metadata["resourceVersion"] != version {
		c.wrong(m, "the data are of uid %v in version %v, the event is of %s in %s", metadata["uid"], metadata["resourceVersion"], uid, version)
	}
	api, _ := data["apiVersion"].(string)
	path := "/apis/" + api + "/"
	if !strings.Contains(api, "/") {
		path = "/api/" + api + "/"
	}
	if got := m.Attributes["subject"]; m.Attributes["apiversion"] != api || api != "" && !strings.HasPrefix(got, path) {
		c.wrong(m, "the data are of apiVersion %q, the event is of %q and subject %q", api, m.Attributes["apiversion"], got)
	}
	state, known := c.world.user.state(uid, version)
	if !known || state["apiVersion"] != data["apiVersion"] || c.world.restored || m.Kind() == "deleted" || m.Attributes["truncated"] == "true" || m.Attributes["finalstateunknown"] == "true" {
		return
	}
	if c.world.settings.shaped {
		project(state)
	}
	if !reflect.DeepEqual(data, state) {
		c.wrong(m, "the data are not what the API server answered: got %.300v, want %.300v", data, state)
	}
}

// mayLeave tells whether the delete of what exists may be right: it left the
// selection, which only a watch can tell, or it was gone before history went back.
func (c *streamCheck) mayLeave(m harness.Received) bool {
	return c.world.restored || c.world.settings.labels && m.Attributes["cause"] == "watch"
}

// twoNodes tells whether both forwarders have run, and might have written at once.
func (w *world) twoNodes() bool {
	return w.settings.replicas == 0 && w.nodes[0].Ended() != nil && w.nodes[1].Ended() != nil
}

// mayReturn tells whether a deleted UID may exist again: it left the selection and
// is back, or history went back.
func (w *world) mayReturn() bool { return w.settings.labels || w.restored }

// mayRepeat tells whether the bus may have an event several times in a row.
func (w *world) mayRepeat() bool { return w.settings.sink == onKafka && !w.settings.kafka.idempotent }

func (w *world) purges() bool { return w.settings.retention < time.Hour }
