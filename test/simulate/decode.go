package simulate

import (
	"encoding/json"
	"strconv"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// previous is the part of an event that describes the event before it.
type previous struct {
	version string
	content *content // nil if the event does not have it
}

// eventIn decodes the event in a message.
func eventIn(m *stream.Message) (e published, p previous, err error) {
	decoded, err := binding.Decode(m.Headers, m.Data)
	if err != nil {
		return e, p, err
	}
	if e.Acked, err = event.AckedFrom(decoded.Attribute); err != nil {
		return e, p, err
	}
	e.Position, e.id = m.Sequence, decoded.ID
	e.kind = event.Type(decoded.Attribute("type")).Short()
	e.version, _ = strconv.ParseUint(e.ResourceVersion, 10, 64)
	p.version = decoded.Attribute("previousversion")
	data := json.RawMessage(decoded.Data)
	if decoded.Attribute("dataschema") != "" {
		var change struct {
			Object   json.RawMessage `json:"object"`
			Previous *content        `json:"previous"`
		}
		if err := json.Unmarshal(data, &change); err != nil {
			return e, p, err
		}
		data, p.content = change.Object, change.Previous
	}
	return e, p, json.Unmarshal(data, &e.content)
}
