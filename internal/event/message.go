package event

// Attribute is one CloudEvents context attribute or extension. The value has the canonical
// string form of CloudEvents 1.0, section 3.1. Nothing is escaped, because escapes depend
// on the protocol binding.
type Attribute struct{ Name, Value string }

// Message is one CloudEvent, ready for any bus.
type Message struct {
	ID  string
	Key Key // of a marker: only group and resource, or empty

	// Marker is set on events without an object: of a whole resource
	// (io.kuberelay.snapshot.started and .completed, io.kuberelay.resource.resolved), a
	// writer or the cluster.
	Marker bool

	// Attributes holds every attribute of the event in a fixed order, including id, source,
	// specversion, type, datacontenttype and partitionkey. No value is empty.
	Attributes []Attribute

	// Data is JSON: the Kubernetes object, or its change if the attribute dataschema is
	// [SchemaChange].
	Data []byte

	memory *[]byte // pooled memory of Data, or nil

	// Expected is the position of the object's last event in the checkpoint, or 0. A bus
	// with compare-and-set refuses the message if the position is wrong.
	Expected uint64

	// Acked is the entry of the checkpoint after the acknowledgement, without Position.
	Acked Acked
}

// Free releases the memory of Data, which must not be used afterwards. Call it after the
// acknowledgement, because the message is not sent again then. Calling it is optional.
func (m *Message) Free() {
	if m.memory != nil {
		m.Data = nil
		giveBack(m.memory)
		m.memory = nil
	}
}

// Attribute returns the value of the named attribute, or "" if it is absent.
func (m *Message) Attribute(name string) string {
	for _, a := range m.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}
