package simulate

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// The promises that the oracle checks in each step and at the end
const (
	ruleDelete   = "no delete of what exists and is selected"
	ruleState    = "an event has a state that the cluster had"
	ruleOrder    = "the states of an object never go back"
	ruleRecreate = "a recreation is a delete, then a create"
	ruleOnce     = "no event twice"
	ruleNoReason = "no event without a change"
	rulePrevious = "an event names the event before it"
	ruleType     = "the type of an event follows from the event before it"
	rulePurge    = "nothing that exists is purged"
	ruleConverge = "the bus converges to the cluster"
	ruleRest     = "at rest nothing happens"
)

// oracle records the states of the cluster and of the bus and checks the bus against the cluster.
// It shares only the decoding of messages with the forwarder.
type oracle struct {
	world      *world
	seen       [len(objectNames)]state
	states     map[version][]state
	absent     map[int]uint64 // by UID, the last version without the object
	unlabeled  map[int]uint64 // by UID, the last version without the label
	outOfScope map[int]bool   // by UID, whether a forwarder may have seen the object in a namespace without the label
	byLabel    bool           // a configuration has selected by label
	restored   bool
	lossy      bool // the bus has lost messages
	events     [len(objectNames)][]published
	forged     [len(objectNames)]*published   // the last message, if it is from a foreign writer
	forgeries  map[uint64]forgedMessage       // by position
	writer     [len(objectNames)]*ledger.Term // the term that published the last event
	unsure     [len(objectNames)]bool         // a response was lost, so the forwarder may repeat an event

	// unknown marks the objects whose last event the running forwarders may not know: the bus lost
	// the last event, or stored an event of a killed forwarder, an ended session, an ended term, or a
	// foreign writer. The oracle checks no consistency point against such an object until a running forwarder
	// publishes another event of it.
	unknown [len(objectNames)]bool
}

// version identifies a state of an object. After a restore, a second state can have the same
// version.
type version struct {
	uid     int
	version uint64
}

// published is an event on the bus.
type published struct {
	event.Acked
	id      string
	kind    string
	version uint64
	content content

	isCopy  bool // forged with the attributes of the true state
	answers bool // the message before is from a foreign writer
	late    bool // nobody waited for the response anymore
	noData  int  // the UID in the attributes of a forged event whose data isn't an object, otherwise 0
	isOld   bool // forged before a forwarder knew the object, so the forwarder doesn't read the data
	inLost  bool // forged at the position of a lost event, with the UID and version of that event
}

// isRepair reports whether an event is the repair of an event that the forwarder treated as foreign.
func (p published) isRepair() bool { return strings.Contains(p.id, ".repaired.") }

func (p published) uid() int { return numberOf(p.UID) }

// content is the data of an event.
type content struct {
	Metadata struct {
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	Data struct {
		Default string  `json:"default"`
		Spec    string  `json:"spec"`
		Noise   *string `json:"noise"`
	} `json:"data"`
}

func (o *oracle) init(w *world) {
	o.world, o.states, o.absent, o.unlabeled, o.outOfScope, o.forgeries = w, map[version][]state{}, map[int]uint64{}, map[int]uint64{}, map[int]bool{}, map[uint64]forgedMessage{}
}

// observe records the current states of the cluster.
func (o *oracle) observe() {
	w := o.world
	o.byLabel = o.byLabel || w.config.selection == byLabel
	o.restored = w.cluster.life > 0
	for object, s := range w.cluster.objects {
		if s.exists() && (!w.cluster.space().label || slices.ContainsFunc(w.processes[:], (*process).seesUnselected)) {
			o.outOfScope[s.uid] = true
		}
		before := o.seen[object]
		if s == before {
			continue
		}
		o.seen[object] = s
		if before.exists() && before.uid != s.uid {
			o.absent[before.uid] = max(o.absent[before.uid], w.cluster.version)
		}
		if before.exists() && (before.uid != s.uid || !s.label) { // a watch shows the last state with the version of the change
			before.version = w.cluster.version
			o.had(before)
		}
		if !s.exists() {
			continue
		}
		if !s.label {
			o.unlabeled[s.uid] = max(o.unlabeled[s.uid], s.version)
		}
		o.had(s)
	}
}

func (o *oracle) had(s state) {
	if of := (version{s.uid, s.version}); !slices.Contains(o.states[of], s) {
		o.states[of] = append(o.states[of], s)
	}
}

// last returns the last event of an object.
func (o *oracle) last(object int) (published, bool) {
	if all := o.events[object]; len(all) > 0 {
		return all[len(all)-1], true
	}
	return published{}, false
}

// lost forgets the events that the bus no longer has.
func (o *oracle) lost() {
	o.lossy = true
	for object, f := range o.forged {
		if !o.world.foreign || f != nil && o.world.bus.at(f.Position) != nil {
			continue
		}
		o.forged[object] = nil // now an earlier forged message may be the last message
		if m := o.world.bus.lastOf(subjectOf(object)); m != nil && !slices.ContainsFunc(o.events[object], func(p published) bool { return p.Position == m.Sequence }) {
			o.forge(object, m.Sequence, o.forgeries[m.Sequence])
		}
	}
	for object := range o.events {
		before, _ := o.last(object)
		o.events[object] = slices.DeleteFunc(o.events[object], func(p published) bool { return !o.world.hasStored(p.Position) })
		after, _ := o.last(object)
		o.unknown[object] = o.unknown[object] || after.Position != before.Position
	}
}

// purged checks a purge and forgets the purged events. If the bus loses its end while a purge is in flight,
// the purge can remove a forged message whose position the bus used a second time.
func (o *oracle) purged(object int, upTo uint64) {
	f := o.forged[object]
	isReused := f != nil && f.Position <= o.world.bus.lost
	if last := o.shown(object); last.Live() && last.Position <= upTo && !isReused {
		o.world.violate(rulePurge, "%s is on the bus with version %s, and is purged", objectNames[object], last.ResourceVersion)
	}
	o.events[object] = slices.DeleteFunc(o.events[object], func(p published) bool { return p.Position <= upTo })
	if f != nil && f.Position <= upTo {
		o.forged[object] = nil
	}
}

// stored checks an event of a forwarder that the bus has stored.
func (o *oracle) stored(m *stream.Message, f *flight) {
	w, object, follows, by := o.world, f.object, f.follows, f.of
	e, previous, err := eventIn(m)
	if err != nil {
		w.violate(ruleState, "the event at %d: %v", m.Sequence, err)
		return
	}
	e.late = f.sender == nil
	if w.foreign {
		e.answers = o.forged[object] != nil
		o.storedBesideForger(object, e)
		o.events[object], o.unknown[object] = append(o.events[object], e), false
		return
	}
	last, ok := o.last(object)
	if o.isOfWriterBehind(e, last, f) {
		if !e.Live() {
			o.checkEnd(object, e, published{}, false)
		} else if !o.isState(e) {
			w.violate(ruleState, "%s at %d has no state of the cluster: uid %s version %d", objectNames[object], e.Position, e.UID, e.version)
		}
		o.forgetIDs(object)
		o.events[object] = append(o.events[object], e)
		return
	}
	for _, before := range o.events[object] {
		if before.id == e.id && before.Epoch == e.Epoch && !(e.Deleted && last.Live() && last.UID == e.UID) && !o.returnsByRestore(object, before, e, last) {
			w.violate(ruleOnce, "the id %s is at %d and at %d", e.id, before.Position, e.Position)
		}
	}
	if e.Live() {
		o.checkState(object, e, last, f)
	} else {
		o.checkRemoval(object, e, last, ok)
		o.checkReturn(object, e, f.latest)
		o.checkLastState(object, e, f)
	}
	// Until a forwarder detects the restore of etcd, versions of two objects aren't comparable. If
	// the create of an object wasn't acknowledged, the forwarder publishes the object once more with
	// a version of the new history.
	unknown := o.restored && (e.UID != last.UID || last.Deleted) && e.Epoch == last.Epoch
	// A delete that repairs a late event has no version if the watch is behind that event. Until a
	// forwarder detects a restore, its watch is behind every event of the former history, and a delete
	// after a late event has no version either.
	unknown = unknown || e.Deleted && e.version == 0 && (e.isRepair() || o.followsLateEvent(last)) || e.isRepair() && o.restored && e.Epoch == last.Epoch
	if deselectsUnseenEvent(e, last, f) {
		unknown = true
		o.forgetIDs(object)
	}
	unknown = unknown || o.missesEpoch(e, last) || o.followsReusedPosition(follows, last)
	unknown = unknown || o.mayDisagreeAboutEpochs() && by.epoch < last.Epoch
	if ok && !unknown && (e.Epoch < last.Epoch || e.Epoch == last.Epoch && e.version < last.version) {
		w.violate(ruleOrder, "%s: version %d.%d at %d is after %d.%d at %d", objectNames[object], e.Epoch, e.version, e.Position, last.Epoch, last.version, last.Position)
	}
	if !o.followsReusedPosition(follows, last) {
		o.checkPrevious(object, e, last, previous)
	}
	o.events[object] = append(o.events[object], e)
	o.unknown[object] = false
}

// forgetIDs allows each ID of an object to occur again.
func (o *oracle) forgetIDs(object int) {
	for n := range o.events[object] {
		o.events[object][n].id = ""
	}
}

// isState reports whether the cluster had the state that an event shows.
func (o *oracle) isState(e published) bool {
	return slices.ContainsFunc(o.states[version{e.uid(), e.version}], func(s state) bool { return e.content.shows(s) })
}

// checkState checks an event that shows an object.
func (o *oracle) checkState(object int, e, last published, f *flight) {
	w, name := o.world, objectNames[object]
	if !o.isState(e) {
		w.violate(ruleState, "%s at %d has no state of the cluster: uid %s version %d", name, e.Position, e.UID, e.version)
	}
	switch {
	case last.Live() && last.UID != e.UID && !o.repairsLateEvent(e, last, f):
		w.violate(ruleRecreate, "%s: uid %s at %d follows uid %s at %d", name, e.UID, e.Position, last.UID, last.Position)
	case !o.lossy && !e.isRepair() && last.Live() != (e.kind == "updated"):
		w.violate(ruleType, "%s: %s at %d follows %s at %d", name, e.kind, e.Position, last.kind, last.Position)
	case last.Live() && last.Epoch == e.Epoch && !e.isRepair() && e.content.equals(last.content) && !o.unsure[object]:
		w.violate(ruleNoReason, "%s: the state at %d is the one at %d", name, e.Position, last.Position)
	}
}

// checkRemoval checks a deleted or deselected event.
func (o *oracle) checkRemoval(object int, e, last published, ok bool) {
	w, name := o.world, objectNames[object]
	// A forwarder treats a late delete by a killed forwarder as foreign if the delete has another
	// last state. Then it repeats the delete.
	repeated := e.isRepair() && ok && last.UID == e.UID
	if !o.lossy && !repeated && !o.mayRepeatPurgedDelete(ok) && (!ok || !last.Live() || last.UID != e.UID) {
		w.violate(ruleType, "%s: %s of uid %s at %d follows %s of uid %s at %d", name, e.kind, e.UID, e.Position, last.kind, last.UID, last.Position)
	}
	o.checkEnd(object, e, last, ok)
}

// checkEnd checks that the object of a deleted event is gone, and that the object of a deselected
// event isn't selected.
func (o *oracle) checkEnd(object int, e, last published, ok bool) {
	w, name := o.world, objectNames[object]
	since := uint64(0)
	removed := w.foreign && !last.Live() // a removal that repairs a forgery can have the version of the forgery
	if ok && last.UID == e.UID && !o.restored && !removed {
		since = last.version
	}
	absent, wasAbsent := o.absent[e.uid()]
	unlabeled, wasUnlabeled := o.unlabeled[e.uid()]
	wasAbsent, wasUnlabeled = wasAbsent && absent >= since, wasUnlabeled && unlabeled >= since
	// The watch of namespaces may be behind, so a forwarder may have seen the object as unselected. If the
	// object also left and rejoined the label selector, the forwarder can publish the delete that its watch
	// showed.
	wasUnlabeled = wasUnlabeled || o.outOfScope[e.uid()]
	switch {
	case e.Deselected && !wasUnlabeled && !wasAbsent:
		w.violate(ruleDelete, "%s: uid %s is deselected at %d, and is selected", name, e.UID, e.Position)
	// If only a forger published the object, the forwarder can't tell a deselection from a delete.
	case !e.Deselected && !wasAbsent && !(wasUnlabeled && (o.byLabel || w.foreign)):
		w.violate(ruleDelete, "%s: uid %s is deleted at %d, and exists", name, e.UID, e.Position)
	}
}

// checkPrevious checks the version and content that an event states for the event before it.
func (o *oracle) checkPrevious(object int, e, last published, p previous) {
	w, name := o.world, objectNames[object]
	if last.Live() && last.UID == e.UID && !e.isRepair() && p.version != last.ResourceVersion && !o.followsLateEvent(last) {
		w.violate(rulePrevious, "%s: the event at %d follows version %s, and says %s", name, e.Position, last.ResourceVersion, p.version)
	}
	if p.content == nil || o.lossy && last.UID == "" { // subscribers received the event before the bus lost it
		return
	}
	if p.content.Metadata.ResourceVersion != last.ResourceVersion || p.content.Data.Spec != last.content.Data.Spec {
		w.violate(rulePrevious, "%s: the event at %d follows version %s, and has version %s as the previous state", name, e.Position, last.ResourceVersion, p.content.Metadata.ResourceVersion)
	}
}

// shows reports whether c is the content of a state.
func (c content) shows(s state) bool {
	return c.Metadata.UID == uidOf(s.uid) && c.Metadata.ResourceVersion == versionText(s.version) && c.Data.Spec == strconv.Itoa(s.spec) &&
		c.Metadata.Labels["on"] == strconv.FormatBool(s.label) && (c.Data.Noise == nil || *c.Data.Noise == strconv.Itoa(s.noise))
}

// equals reports whether the forwarder publishes two contents as the same content. If it drops the
// field noise, the version doesn't count, because a change of noise changes only the version.
func (c content) equals(other content) bool {
	a, b := c.Data, other.Data
	same := a.Default == b.Default && a.Spec == b.Spec && c.Metadata.Labels["on"] == other.Metadata.Labels["on"]
	if a.Noise == nil || b.Noise == nil {
		return same && a.Noise == b.Noise
	}
	return same && *a.Noise == *b.Noise && c.Metadata.ResourceVersion == other.Metadata.ResourceVersion
}
