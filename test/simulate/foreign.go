package simulate

import (
	"bytes"
	"slices"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
)

// forgery is a kind of message from a foreign writer.
type forgery uint8

const (
	forgedDelete forgery = iota
	forgedDeselected
	forgedContent  // other content in the current version
	forgedLater    // other content in a later version
	forgedUID      // the create of an object that never existed
	forgedUIDGone  // the delete of an object that never existed
	forgedText     // a message that isn't an event
	forgedData     // an event whose data isn't an object
	forgedNoHeader // a message without headers
	forgedCopy     // the attributes of the current state, with other data
	forgeries
)

// forgedMessage is a message of a foreign writer and the UID in it.
type forgedMessage struct {
	kind forgery
	uid  int
}

// forgedUIDs are the UIDs of objects that never existed.
const forgedUIDs = 1_000_000

// forge publishes a message of a foreign writer about an object.
func (w *world) forge(object int, f forgery) {
	s := w.cluster.objects[object]
	if !s.exists() || f == forgedUID || f == forgedUIDGone {
		s = state{uid: forgedUIDs + w.steps, version: max(1, s.version), label: true}
	}
	c := event.Change{Key: keyOf(object), Resource: resource, Type: event.Updated, Cause: event.CauseWatch, Observed: w.now}
	switch f {
	case forgedDelete, forgedUIDGone:
		c.Type = event.Deleted
	case forgedDeselected:
		c.Type = event.Deselected
	case forgedLater:
		s.spec, s.version = -1, s.version+3
	case forgedCopy:
	default:
		s.spec = -1
	}
	c.Object = render(object, s, w.cluster.content, w.config.form)
	headers, data := natsgo.Header(nil), []byte("nonsense")
	if f != forgedNoHeader {
		headers, data = encode(c, f)
	}
	position := w.bus.store(subjectOf(object), headers, data, w.now)
	w.tell("  uid %d version %d at %d, forgery %d", s.uid, s.version, position, f)
	w.oracle.forge(object, position, forgedMessage{f, s.uid})
}

func encode(c event.Change, f forgery) (natsgo.Header, []byte) {
	m, err := event.Builder{Cluster: clusterName}.Message(c)
	if err != nil {
		panic(err)
	}
	h := binding.NewHeader()
	defer h.Free()
	encoded, err := binding.Encode(m, false, h)
	if err != nil {
		panic(err)
	}
	headers, data := cloneHeader(encoded.Header), bytes.Clone(encoded.Data)
	switch f {
	case forgedText:
		headers = natsgo.Header{"Content-Type": {"text/plain"}}
	case forgedData:
		data = []byte("{")
	case forgedCopy:
		data = bytes.Replace(data, []byte(`"spec":"`), []byte(`"spec":"-`), 1)
	}
	return headers, data
}

// forge records a message of a foreign writer. It is the last message of the object until a
// forwarder publishes another one.
func (o *oracle) forge(object int, position uint64, f forgedMessage) {
	e, _, err := eventIn(o.world.bus.at(position))
	if err != nil {
		e = published{}
	}
	e.Position, e.isCopy = position, f.kind == forgedCopy
	if f.kind == forgedData {
		e.noData = f.uid
	}
	o.forgeries[position] = f // a position can be used again
	for _, p := range o.world.processes {
		if p != nil && p.acked != nil { // after a loss, a forwarder trusts the messages on the bus, as at its start
			known := p.acked.Get(keyOf(object))
			e.isOld = e.isOld || known.UID == "" || known.Position >= position
			same := f.kind == forgedData || known.UID == e.UID && known.ResourceVersion == e.ResourceVersion // the forwarder doesn't read the data
			e.inLost = e.inLost || known.Position == position && same
		}
	}
	o.forged[object], o.unknown[object] = &e, true
}

// started records that a forwarder has read the bus for the first time.
func (o *oracle) started() {
	for _, f := range o.forged {
		if f != nil {
			f.isOld = true
		}
	}
}

// shown returns the state of an object on the bus.
func (o *oracle) shown(object int) published {
	if f := o.forged[object]; f != nil {
		return *f
	}
	last, _ := o.last(object)
	return last
}

// storedBesideForger checks an event in a history with a foreign writer. It doesn't check the
// previous version and content in the event, because the forwarder may have adopted a forged event.
func (o *oracle) storedBesideForger(object int, e published) {
	answers := e.answers                            // if the message isn't an event, a forwarder that starts knows only its position
	if f := o.forged[object]; f != nil && f.isOld { // a forwarder that starts doesn't see the events before f
		for n := range o.events[object] {
			o.events[object][n].id = ""
		}
	}
	o.forged[object] = nil
	last, ok := o.last(object)
	// After a restore of etcd, the cluster uses the same versions again. A repair with a version of the
	// new history can hide the restore.
	hides := func(p published) bool { return o.restored && (p.isRepair() || p.answers) }
	answers = answers || mayRepeatID(last)
	switch {
	case e.Live():
		if !o.isState(e) {
			o.world.violate(ruleState, "%s at %d has no state of the cluster: uid %s version %d", objectNames[object], e.Position, e.UID, e.version)
		}
	case e.uid() < forgedUIDs:
		o.checkEnd(object, e, last, ok)
	}
	for n, before := range o.events[object] {
		if before.id == e.id && before.Epoch == e.Epoch && e.Live() && !answers && !slices.ContainsFunc(o.events[object][n+1:], hides) {
			o.world.violate(ruleOnce, "the id %s is at %d and at %d", e.id, before.Position, e.Position)
		}
	}
}
