package event

// Attribute is one CloudEvents context attribute or extension, with its value in
// the canonical string form of CloudEvents 1.0, section 3.1. Nothing is escaped:
// that is the business of a protocol binding.
type Attribute struct{ Name, Value string }

// Message is one CloudEvent, ready for any bus.
type Message struct {
	ID  string
	Key Key // of a marker: group and resource only, or nothing

	// Marker is set on the events that are of no object, but of a resource as a whole
	// (io.kuberelay.snapshot.started and .completed), a writer or the cluster.
	Marker bool

	// Attributes holds every attribute of the event in a fixed order, id, source,
	// specversion, type, datacontenttype and partitionkey included, and none
	// that is empty.
	Attributes []Attribute

	// Data is JSON: the bare Kubernetes object, or, if the attribute dataschema is
	// [SchemaChange], a change of one.
	Data []byte

	memory *[]byte // of Data, if that is to be used again

	// Expected is the position of the object's last event on the bus as the
	// checkpoint knows it, 0 for none. A bus that can compares it and refuses the
	// message where it is wrong.
	Expected uint64

	// Acked is what the checkpoint holds once the bus has acknowledged the
	// message; Position is then filled in.
	Acked Acked
}

// Free gives the memory of Data back, which nobody may use any more: the bus has
// acknowledged the message, so that it will not be sent again. It need not be called.
func (m *Message) Free() {
	if m.memory != nil {
		m.Data = nil
		giveBack(m.memory)
		m.memory = nil
	}
}

// Attribute gives the value of the named attribute, "" if it is absent.
func (m *Message) Attribute(name string) string {
	for _, a := range m.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}
