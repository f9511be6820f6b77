package tail

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// JSONWithPatch is like [Event.JSON], but gives the event of an object the data format of
// KUBERELAY_DATA=change, however the event was published. That format has the object, the previous
// state, and the patch (RFC 6902) from the previous state to the object. The previous state and the
// patch are null if the event is not an update, if it is not whole, or if the previous state is
// unknown.
func (e Event) JSONWithPatch(c Change) ([]byte, error) {
	schema := e.Message.Attribute("dataschema")
	_, err := event.AckedFrom(e.Message.Attribute)
	isBare := schema == "" && err == nil && !e.Message.Marker
	isChange := schema == event.SchemaChange && c.Object != nil
	if !isBare && !isChange { // a marker, an event of another writer, or a partial event that already has this format
		return e.JSON()
	}
	if c.Object == nil {
		c.Object = e.Message.Data // a partial object
	}
	if event.Type(e.Message.Attribute("type")) != event.Updated {
		c.Previous, c.Patch = nil, nil
	}
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("show event %q: %w", e.Message.ID, err) }
	if c.Previous != nil && c.Patch == nil {
		if c.Patch, err = event.PatchOf(c.Previous, c.Object); err != nil {
			return fail(err)
		}
	}
	data, err := event.EncodeJSON(struct {
		Object   json.RawMessage `json:"object"`
		Previous json.RawMessage `json:"previous"`
		Patch    json.RawMessage `json:"patch"`
	}{c.Object, c.Previous, c.Patch})
	if err != nil {
		return fail(err)
	}
	changed := *e.Message
	changed.Data = data
	if schema == "" {
		changed.Attributes = append(slices.Clip(changed.Attributes), event.Attribute{Name: "dataschema", Value: event.SchemaChange})
	}
	e.Message = &changed
	return e.JSON()
}
