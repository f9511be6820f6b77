package tail

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

// States keeps the last state of each object, compressed, to compare it with the next event. It is
// not safe for concurrent use.
type States struct {
	// Ask, if set, returns the event before the given one, or nil. Change calls it if the first
	// event of an object is an update.
	Ask func(Event) *event.Message

	// Last means that the first event of each object is its current state, not a change.
	Last bool

	packers map[schema.GroupResource]*event.Packer
	last    map[place]kept
}

// place identifies an object by its name in a cluster. Several objects might have used the name, one
// after the other.
type place struct {
	cluster string
	key     event.Key
}

// kept is the last state of an object. An empty body means that the last event had no whole state.
type kept struct {
	uid  types.UID
	body event.Body
}

// NewStates returns empty States.
func NewStates() *States {
	return &States{packers: map[schema.GroupResource]*event.Packer{}, last: map[place]kept{}}
}

// Change is the JSON of an object before and after an event. It is valid as long as the message of
// the event is.
type Change struct {
	Object   json.RawMessage // nil if the event does not have the whole object
	Previous json.RawMessage // nil if unknown
	Patch    json.RawMessage // the patch from Previous to Object; nil if the event has none

	// Present means that the event is a current state, not a change.
	Present bool
}

// Change compares an event with the last state of the object, and then keeps the event's state.
func (s *States) Change(e Event) Change {
	if e.Message.Marker {
		return Change{}
	}
	c, uid := read(e.Message)
	at := place{e.Cluster, e.Message.Key}
	was, seen := s.last[at]
	if c.Previous == nil && c.Object != nil {
		c.Present = s.Last && !seen
		if !seen {
			was = s.ask(e)
		}
		c.Previous, c.Patch = was.of(uid), nil
	}
	s.keep(at, e.Message, c.Object, uid)
	return c
}

// Keep keeps the state of an event that precedes the first printed event.
func (s *States) Keep(e Event) {
	if !e.Message.Marker {
		c, uid := read(e.Message)
		s.keep(place{e.Cluster, e.Message.Key}, e.Message, c.Object, uid)
	}
}

// Forget drops the state of an object for which the bus no longer has an event.
func (s *States) Forget(cluster string, k event.Key) { delete(s.last, place{cluster, k}) }

func (s *States) keep(at place, m *event.Message, object []byte, uid types.UID) {
	switch {
	case event.Type(m.Attribute("type")).IsRemoval():
		delete(s.last, at)
	case object == nil:
		s.last[at] = kept{}
	default:
		s.last[at] = kept{uid, s.packer(at.key).Pack(object)}
	}
}

func (s *States) packer(k event.Key) *event.Packer {
	p := s.packers[k.GroupResource()]
	if p == nil {
		p = event.NewPacker()
		s.packers[k.GroupResource()] = p
	}
	return p
}

func (s *States) ask(e Event) kept {
	if s.Ask == nil || event.Type(e.Message.Attribute("type")) != event.Updated {
		return kept{}
	}
	m := s.Ask(e)
	if m == nil || event.Type(m.Attribute("type")).IsRemoval() {
		return kept{}
	}
	c, uid := read(m)
	return kept{uid, event.JSON(c.Object)}
}

// of returns the state if it belongs to the object with that UID, and nil otherwise.
func (k kept) of(uid types.UID) json.RawMessage {
	if k.body.None() || k.uid != uid {
		return nil
	}
	b, err := k.body.JSON()
	if err != nil {
		return nil
	}
	return b
}

// read parses the data of an event of an object. It returns no state for a truncated object or an
// object whose final state is unknown.
func read(m *event.Message) (c Change, uid types.UID) {
	if m.Attribute("truncated") == "true" || m.Attribute("finalstateunknown") == "true" {
		return Change{}, ""
	}
	c.Object = m.Data
	if m.Attribute("dataschema") == event.SchemaChange {
		var data struct{ Object, Previous, Patch json.RawMessage }
		if json.Unmarshal(m.Data, &data) != nil {
			return Change{}, ""
		}
		c = Change{Object: data.Object, Previous: present(data.Previous), Patch: present(data.Patch)}
	}
	o, err := event.ObjectFromData(m.Attribute, m.Data)
	if err != nil { // an event of another writer
		return Change{}, ""
	}
	return c, o.UID
}

// present returns nil for null.
func present(v json.RawMessage) json.RawMessage {
	if string(v) == "null" {
		return nil
	}
	return v
}
