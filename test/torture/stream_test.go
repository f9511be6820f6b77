package torture

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	verifyreport "github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/test/harness"
)

// streamCheck checks every message that the stream has ever had, including dropped and purged
// messages, which verify can't see. It shares no code with verify or the forwarder.
type streamCheck struct {
	world *world

	// missed means that the bus removed some messages before the recorder read them, so adjacent
	// messages may not be neighbors.
	missed bool
	read   map[harness.Place]int // the message at each place, as an index in its topic

	run  int // the run of the current message; see configured
	conf configuration

	// existing contains the UIDs that exist in the cluster, with the partitionkeys of their objects.
	existing map[string]string

	seen      map[string]harness.Received // by id
	last      map[string]harness.Received // by subject
	completed map[string]harness.Received // last completed marker, by group and resource
	points    map[string]uint64           // version of the last consistency point, by partition, group and resource
	runs      map[string]int              // run of the last message, by subject
	lost      map[string]harness.Received // last event that a fault removed, by subject
	former    map[string]harness.Received // last message in an earlier topic, by subject
	life      int                         // the current life of the topic
	writers   map[int]harness.Producer    // by partition, the producer of the last marker
	deletes   map[int]harness.Received    // by partition, the last record if it is a delete
	left      map[string]int              // number of deselected events, by uid

	foreign    map[string]bool             // subjects whose last message is foreign
	repairable map[string]map[string]bool  // positions of foreign messages, by subject
	claimed    map[string]harness.Received // the last foreign message, by subject

	problems []string
}

// anew begins a new life of the topic, which contains no messages of the life before.
func (c *streamCheck) anew(life int) {
	if c.former == nil {
		c.former = map[string]harness.Received{}
	}
	maps.Copy(c.former, c.last)
	c.seen, c.last, c.completed = map[string]harness.Received{}, map[string]harness.Received{}, map[string]harness.Received{}
	c.lost, c.life, c.writers = map[string]harness.Received{}, life, map[int]harness.Producer{}
	c.deletes = map[int]harness.Received{}
	c.runs, c.points = map[string]int{}, map[string]uint64{}
}

// checkStream returns the problems of the messages. It skips messages that a fault removed, because
// later events needn't follow them. It checks each topic separately.
func (w *world) checkStream(all []harness.Received, missed bool, existing map[string]string) (problems []string) {
	byTopic := map[string][]harness.Received{}
	for _, m := range all {
		byTopic[m.Topic] = append(byTopic[m.Topic], m)
	}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		c := streamCheck{world: w, missed: missed, existing: existing, left: map[string]int{}, read: map[harness.Place]int{}}
		c.check(byTopic[topic])
		problems = append(problems, c.problems...)
	}
	return problems
}

func (c *streamCheck) check(all []harness.Received) {
	w := c.world
	for n, m := range all {
		c.read[m.Place] = n
	}
	c.anew(0)
	back := w.wentBack
	for n, m := range all {
		for len(back) > 0 && back[0].from < m.Sequence {
			c.goBack(all, back[0])
			back = back[1:]
		}
		if m.Life != c.life && w.resumed[life{m.Topic, m.Life}] {
			c.life = m.Life
		} else if m.Life != c.life {
			if m.Topic == "" && n > 0 && m.Sequence <= all[n-1].Sequence {
				c.wrong(m, "a new stream begins before the end of the former one at %s: a subscriber that read the former stream would wait", all[n-1].Place)
			}
			c.anew(m.Life)
		}
		c.run, c.conf = w.configured(m.Topic, n), c.configured(m)
		if w.isForeign(m) {
			c.foreignMessage(m)
			continue
		}
		if foreign, ok := c.unrecorded(m); ok {
			c.foreignMessage(foreign)
		}
		if m.Invalid != nil {
			c.wrong(m, "no CloudEvent: %v", m.Invalid)
			continue
		}
		if w.settings.sink == onKafka {
			c.producer(m)
			c.afterDelete(m)
		}
		switch {
		case w.lost[m.Place] && m.Body == nil: // a tombstone after a delete contains no state of the object
		case w.lost[m.Place]:
			c.lost[m.Subject] = m
		case isMarker(m):
			c.marker(m)
		case m.Body == nil && !c.foreign[m.Subject] && !w.foreign.entries[m.Subject]:
			c.tombstone(m)
		case m.Body == nil || c.repeats(m):
		case c.foreign[m.Subject] || w.foreign.entries[m.Subject] || c.isSecondAnswer(m):
			c.answer(m)
			c.seen[m.Attributes["id"]], c.last[m.Subject], c.runs[m.Subject] = m, m, c.run
		case c.world.mayAnswerOther(m) && c.world.answersOther(m, c.last[m.Subject]):
			c.checkAnswer(m)
			c.seen[m.Attributes["id"]], c.last[m.Subject], c.runs[m.Subject] = m, m, c.run
		case w.restored && w.mayAnswerOther(m) && w.deletesOther(m, c.last[m.Subject]):
			c.checkAnswer(m)
			c.forgetIDs(m.Subject)
			c.seen[m.Attributes["id"]], c.last[m.Subject], c.runs[m.Subject] = m, m, c.run
		default:
			c.event(m)
			c.seen[m.Attributes["id"]], c.last[m.Subject], c.runs[m.Subject] = m, m, c.run
		}
	}
}

// life is one of the successive streams or topics with the same name.
type life struct {
	topic string
	of    int
}

// loseEnds records that the bus has lost the ends of the topic's partitions: every message from the
// positions in ends on. to is the new life of the topic, which continues at these positions.
func (w *world) loseEnds(all []harness.Received, topic string, ends map[int]uint64, to int) {
	from := to - 1
	for w.resumed[life{topic, from}] {
		from--
	}
	for _, m := range all {
		if m.Topic == topic && m.Life >= from && m.Sequence >= ends[m.Partition] {
			w.lost[m.Place] = true
		}
	}
	w.resumed[life{topic, to}] = true
}

// goBack forgets the messages of a subject after the message that the stream now shows as the last
// one. The bus may have removed that message before the recorder read it.
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

// resourceOf returns the group and resource in a subject or record key.
func resourceOf(m harness.Received) string {
	tokens := strings.Split(m.Subject, "/")
	if m.Topic == "" {
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

// producer checks the writer of a Kafka record. A writer begins with its marker, and after the
// marker no other producer may write to the partition.
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

// repeats reports whether a record is an allowed repetition of the object's record before it.
func (c *streamCheck) repeats(m harness.Received) bool {
	last, ok := c.last[m.Subject]
	return ok && c.world.mayRepeat() && last.Attributes["id"] == m.Attributes["id"] && last.Attributes["sequence"] == m.Attributes["sequence"]
}

// afterDelete checks that the record after a delete is its tombstone.
func (c *streamCheck) afterDelete(m harness.Received) {
	deleted, ok := c.deletes[m.Partition]
	if ok && c.world.settings.kafka.tombstones && !c.missed && deleted.Sequence+1 == m.Sequence && (m.Body != nil || m.Subject != deleted.Subject) {
		c.wrong(m, "no tombstone, after the delete at %s", deleted.Place)
	}
	delete(c.deletes, m.Partition)
	if m.Body != nil && !isMarker(m) && gone(m) {
		c.deletes[m.Partition] = m
	}
}

// tombstone checks a tombstone, which drops an object from a table and lets a compacted topic forget
// the object. A tombstone follows a delete directly, or after the retention.
func (c *streamCheck) tombstone(m harness.Received) {
	last, ok := c.last[m.Subject]
	switch k := c.world.settings.kafka; {
	case !k.tombstones && (k.cleanup != "compact" || !c.world.purges()):
		c.wrong(m, "a tombstone")
	case k.tombstones && ok && last.Sequence+1 != m.Sequence && !c.missed && !c.world.mayRepeat():
		c.wrong(m, "a tombstone that is not right after the delete at %s", last.Place)
	case ok && !gone(last), !ok && !c.missed:
		c.wrong(m, "a tombstone after type %q at %s", last.Kind(), last.Place)
	case ok && last.Partition != m.Partition:
		c.wrong(m, "a tombstone in another partition than the delete at %s", last.Place)
	}
}

func (c *streamCheck) marker(m harness.Received) {
	id := m.Attributes["id"]
	if m.Kind() == "resolved" {
		id += fmt.Sprintf(" in partition %d", m.Partition)
		c.points[pointOf(m)], _ = strconv.ParseUint(m.Attributes["resourceversion"], 10, 64)
	}
	if before, ok := c.seen[id]; ok && !c.world.mayRepeat() {
		c.wrong(m, "the marker %q is at %s already", id, before.Place)
	}
	c.seen[id] = m
	if m.Kind() == "completed" {
		c.completed[resourceOf(m)] = m
	}
}

// pointOf returns the partition and the resource that a consistency point covers.
func pointOf(m harness.Received) string { return fmt.Sprint(m.Partition, " ", resourceOf(m)) }

// keepsPoints reports whether consistency points must hold: the bus lost nothing, no other writer
// wrote, and the selection depends only on the object itself. They needn't hold after a restore of
// etcd: until the forwarder detects the restore, it publishes versions of the new history in the old
// epoch.
func (w *world) keepsPoints() bool {
	return len(w.lost) == 0 && !w.restored && !w.settings.foreign && !w.twoNodes() && !w.mayRepeat() && w.teamSelector() == ""
}

// point checks the event of an object against the consistency point before it.
func (c *streamCheck) point(m harness.Received) {
	version, err := strconv.ParseUint(m.Attributes["resourceversion"], 10, 64)
	isState := err == nil && m.Attributes["id"] == m.Attributes["uid"]+"."+m.Attributes["resourceversion"] && strings.HasPrefix(m.Attributes["sequence"], "0000.")
	if at := c.points[pointOf(m)]; isState && c.run == 0 && version <= at && c.world.keepsPoints() && !c.remodeled(m) && !c.forgotten(c.last[m.Subject], m) {
		c.wrong(m, "version %d comes after the consistency point at %d", version, at)
	}
}

// remodeled reports whether the content of an object can have changed without a new version since its last event: its
// resource moved to another version of the API, or its definition gained a default or prunes a field. The event can
// still have a later version than the last event, if an update in between changed only dropped fields.
func (c *streamCheck) remodeled(m harness.Received) bool {
	last := c.last[m.Subject]
	return c.conf.shaped && last.Attributes["uid"] == m.Attributes["uid"] &&
		(last.Attributes["apiversion"] != m.Attributes["apiversion"] || c.world.user.wasRemodeled(resourceName(m)))
}

// followsUnread reports whether an event follows an event of its object that the bus removed before
// the recorder read it.
func (c *streamCheck) followsUnread(m harness.Received) bool {
	_, number, follows := strings.Cut(m.Attributes["id"], ".selected.")
	before, err := strconv.ParseUint(number, 10, 64)
	_, read := c.read[harness.Place{Life: m.Life, Sequence: before}]
	return follows && err == nil && c.missed && m.Topic == "" && c.last[m.Subject].Sequence < before && before < m.Sequence && !read
}

func (c *streamCheck) event(m harness.Received) {
	if c.followsUnread(m) {
		delete(c.last, m.Subject)
	}
	c.identity(m)
	c.point(m)
	uid, version := m.Attributes["uid"], m.Attributes["sequence"]
	if before, ok := c.seen[m.Attributes["id"]]; ok && !c.mayReturn(before, m) {
		c.wrong(m, "id %q is at %s already", m.Attributes["id"], before.Place)
	}
	if done, ok := c.completed[resourceOf(m)]; ok && m.Kind() == "snapshot" && done.Partition == m.Partition && !c.world.twoNodes() {
		c.wrong(m, "a snapshot after the completed marker at %s", done.Place)
	}
	c.selection(m)
	if m.Kind() == "deleted" && c.existing[uid] != "" && !c.mayExist(m) {
		c.wrong(m, "uid %s was deleted with cause %s, and exists", uid, m.Attributes["cause"])
	}
	last, ok := c.last[m.Subject]
	if ok && last.Partition != m.Partition {
		c.wrong(m, "the event before is in another partition: %s", last.Place)
	}
	if !ok {
		lost, ok := c.lost[m.Subject]
		if ok && !begins(m) && (c.world.settings.sink == onKafka || gone(m)) {
			// A reader must see the delete. Kafka also accepts other events that follow the lost
			// event, until the forwarder has read the checkpoint again.
			if !c.missed {
				c.neighbors(lost, m, uid == lost.Attributes["uid"])
			}
			return
		}
		former, ok := c.former[m.Subject]
		if ok && gone(m) && !gone(former) && former.Attributes["uid"] == uid {
			return // a reader must see the delete
		}
		if !c.missed && !begins(m) {
			c.wrong(m, "the first event is of type %s", m.Kind())
		}
		return
	}
	if is, was := timeOf(m), timeOf(last); is.Before(was) {
		c.wrong(m, "time %s after %s at %s", is, was, last.Place)
	}
	switch order := strings.Compare(version, last.Attributes["sequence"]); {
	case order < 0 && c.isForgotten(last, m):
	case order < 0:
		c.wrong(m, "sequence %s after %s at %s", version, last.Attributes["sequence"], last.Place)
	case order == 0 && !gone(m) && last.Kind() != "deselected" && !isProjected(m) && !outlived(last, m) && !c.forgotten(last, m):
		c.wrong(m, "sequence %s is at %s already", version, last.Place)
	}
	if !c.missed {
		c.neighbors(last, m, uid == last.Attributes["uid"])
		c.change(last, m)
	}
}

// timeOf returns the time of an event, or the zero time if the attribute is malformed.
func timeOf(m harness.Received) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, m.Attributes["time"])
	return t
}

func begins(m harness.Received) bool { return m.Kind() == "created" || m.Kind() == "snapshot" }

// outlived reports whether an event shows that its object still exists in the version of the delete
// before it.
func outlived(last, m harness.Received) bool {
	return last.Kind() == "deleted" && begins(m) && strings.Contains(m.Attributes["id"], ".selected.") && last.Attributes["resourceversion"] == m.Attributes["resourceversion"]
}

// neighbors compares two successive events of an object.
func (c *streamCheck) neighbors(last, m harness.Received, same bool) {
	previous := m.Attributes["previousversion"]
	switch gone := gone(last); {
	case !same && !gone:
		c.wrong(m, "uid %s after uid %s at %s, which was not deleted", m.Attributes["uid"], last.Attributes["uid"], last.Place)
	case gone != begins(m):
		c.wrong(m, "type %s after type %s at %s", m.Kind(), last.Kind(), last.Place)
	case same && last.Kind() == "deleted" && !c.mayExist(last):
		c.wrong(m, "uid %s was deleted at %s and exists", m.Attributes["uid"], last.Place)
	case !same && previous != "":
		c.wrong(m, "previousversion %q in the first event of a uid", previous)
	case same && previous != last.Attributes["resourceversion"] && (previous != "" || !gone || !c.world.purges()) && !(gone && c.world.twoNodes()):
		c.wrong(m, "previousversion %q, but %q is before it at %s", previous, last.Attributes["resourceversion"], last.Place)
	}
}

// forgotten reports whether the removal of an object may have been purged before the object existed
// or was selected again. The forwarder then publishes the object as a new one.
func (c *streamCheck) forgotten(last, m harness.Received) bool {
	return c.world.purges() && begins(m) && (last.Kind() == "deselected" || last.Kind() == "deleted" && c.mayExist(last))
}

// mayReturn reports whether an id may occur twice: in the deletes of an object that existed again in
// between, and in any event after the cluster's history went back.
func (c *streamCheck) mayReturn(before, m harness.Received) bool {
	if epoch(before) != epoch(m) {
		return true
	}
	if c.missed && m.Kind() == "deleted" && c.mayExist(before) {
		return true // the event in between may have been dropped before it was read
	}
	last := c.last[m.Subject]
	if c.forgotten(last, m) {
		return true
	}
	return m.Kind() == "deleted" && !gone(last) && last.Attributes["uid"] == m.Attributes["uid"]
}

// identity checks the id of an event by the rules of docs/events.md, and the content of the event
// against the state that the API server returned for the object.
func (c *streamCheck) identity(m harness.Received) {
	if got, want := m.Attributes["id"], c.ids(m); !slices.Contains(want, got) {
		c.wrong(m, "id %q, want %q", got, want)
	}
	if m.Attributes["resourceversion"] == "" { // the last state of an object that never existed has no version
		c.wrong(m, "no resourceversion")
	}
	c.content(m)
}

// content compares an event's data with its attributes and with the state that the API server
// returned.
func (c *streamCheck) content(m harness.Received) {
	uid, version := m.Attributes["uid"], m.Attributes["resourceversion"]
	data, err := objectOf(m)
	if err != nil {
		c.wrong(m, "data: %v", err)
		return
	}
	c.shape(m, data)
	metadata, _ := data["metadata"].(map[string]any)
	if decoded, err := url.PathUnescape(uid); err == nil {
		uid = decoded
	}
	if is, _ := metadata["resourceVersion"].(string); metadata["uid"] != uid || is != version {
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
	if c.conf.labels && (&unstructured.Unstructured{Object: state}).GetLabels()[selectedLabel] != "yes" {
		// When an object leaves the selector, the watch sends a delete with the earlier content
		// and with the version in which the object left. The forwarder repeats an unacknowledged
		// publish with this state.
		return
	}
	if c.conf.shaped {
		project(state)
	}
	if c.world.user.wasRemodeled(resourceName(m)) {
		leaveModeled(state)
		leaveModeled(data)
	}
	if !reflect.DeepEqual(data, state) {
		c.wrong(m, "the data differ from the API server's response: got %.300v, want %.300v", data, state)
	}
}

// epoch returns the epoch of the cluster's history in which an event was written.
func epoch(m harness.Received) string {
	e, _, _ := strings.Cut(m.Attributes["sequence"], ".")
	return e
}

// mayExist reports whether a deleted object may still exist, or exist again. There are three reasons: the
// object left the label selector of that run, the forwarder inferred the delete while the definition was
// removed but not its objects, or the cluster's history went back. In the last case, an object that changed
// before the forwarder detected the rollback has a later version than its delete, in the same epoch.
func (c *streamCheck) mayExist(deleted harness.Received) bool {
	if c.world.restored {
		return true
	}
	if deleted.Attributes["cause"] == "watch" {
		return c.configured(deleted).labels && c.world.user.wasUnlabeled(deleted.Attributes["partitionkey"], deleted.Attributes["uid"])
	}
	return c.world.user.wasOrphaned(resourceName(deleted))
}

// configured returns the configuration in which a message was written.
func (c *streamCheck) configured(m harness.Received) configuration {
	return c.world.runs[c.world.configured(m.Topic, c.read[m.Place])].configuration
}

// twoNodes reports whether both forwarders have run without leader election, so that they may have
// written at the same time.
func (w *world) twoNodes() bool {
	return w.settings.replicas == 0 && len(w.clusters()) == 1 && len(w.nodes) > 1 && w.nodes[0].Ended() != nil && w.nodes[1].Ended() != nil
}

// isOfTwoWriters reports whether verify may report an event because two forwarders wrote without
// leader election. A forwarder that adopts the other one's removal doesn't trust the version of the
// removal, so its next event names an earlier version as the previous one.
func (w *world) isOfTwoWriters(p verifyreport.Problem) bool {
	return w.twoNodes() && p.Kind == verifyreport.Misordered && strings.HasPrefix(p.Detail, "previousversion is ")
}

// isProjected reports whether an event publishes new content for a version that the bus already had.
func isProjected(m harness.Received) bool { return strings.Contains(m.Attributes["id"], ".projected.") }

// resourceName returns the resource of an event's object, "" for other messages.
func resourceName(m harness.Received) string {
	parts := strings.Split(m.Attributes["partitionkey"], "/")
	if len(parts) != 5 {
		return ""
	}
	return parts[2]
}

// mayRepeat reports whether the bus may contain an event several times in a row.
func (w *world) mayRepeat() bool { return w.settings.sink == onKafka && !w.settings.kafka.idempotent }

func (w *world) purges() bool { return w.settings.retention < time.Hour }
