package tail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wI2L/jsondiff"

	"github.com/kuberelay/kuberelay/internal/event"
)

// JSONWithPatch is as [Event.JSON], but an object's event has the data that it has with
// KUBERELAY_DATA=change, whether or not it was published so: the object, the state before
// it and the patch (RFC 6902) that makes the one of the other. Both of these are null of
// what is no update, or not whole, and where the state before is not known.
func (e Event) JSONWithPatch(c Change) ([]byte, error) {
	schema := e.Message.Attribute("dataschema")
	_, err := event.AckedFrom(e.Message.Attribute)
	isBare := schema == "" && err == nil && !e.Message.Marker
	isChange := schema == event.SchemaChange && c.Object != nil
	if !isBare && !isChange { // a marker, another writer's, or a part that has its form already
		return e.JSON()
	}
	if c.Object == nil {
		c.Object = e.Message.Data // a part of it
	}
	if event.Type(e.Message.Attribute("type")) != event.Updated {
		c.Previous, c.Patch = nil, nil
	}
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("show event %q: %w", e.Message.ID, err) }
	if c.Previous != nil && c.Patch == nil {
		if c.Patch, err = patch(c.Previous, c.Object); err != nil {
			return fail(err)
		}
	}
	data, err := encode(struct {
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

// operation is one of RFC 6902. A remove has no value, and a value may be null.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// patch is what makes one state of the other. Numbers are compared as they are written,
// and elements of arrays by their places.
func patch(before, after []byte) (json.RawMessage, error) {
	old, err := decode(before)
	if err != nil {
		return nil, err
	}
	now, err := decode(after)
	if err != nil {
		return nil, err
	}
	if isDeeper(old, deepest) || isDeeper(now, deepest) {
		whole, err := encode(now)
		if err != nil {
			return nil, err
		}
		return encode([]operation{{Op: jsondiff.OperationReplace, Value: whole}})
	}
	found, err := jsondiff.CompareWithoutMarshal(old, now)
	if err != nil {
		return nil, err
	}
	operations := make([]operation, len(found))
	for i, o := range found {
		operations[i] = operation{Op: o.Type, Path: o.Path}
		if o.Type != jsondiff.OperationRemove {
			if operations[i].Value, err = encode(o.Value); err != nil {
				return nil, err
			}
		}
	}
	return encode(operations)
}

// deepest is how many objects and arrays may be one within the other in what is
// compared. What it takes is the size times this.
const deepest = 128

// isDeeper tells whether a value has more levels than that.
func isDeeper(value any, levels int) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if levels == 0 || isDeeper(member, levels-1) {
				return true
			}
		}
	case []any:
		for _, item := range v {
			if levels == 0 || isDeeper(item, levels-1) {
				return true
			}
		}
	}
	return false
}

// encode is json.Marshal without the escapes that are for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
