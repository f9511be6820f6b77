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
// it and the patch (RFC 6902) that makes the one of the other. Where the state before is
// not known both of these are null. An event that does not have the whole object stays as
// it is.
func (e Event) JSONWithPatch(c Change) ([]byte, error) {
	schema := e.Message.Attribute("dataschema")
	if c.Object == nil || schema != "" && schema != event.SchemaChange {
		return e.JSON()
	}
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("show event %q: %w", e.Message.ID, err) }
	if c.Previous != nil && c.Patch == nil {
		var err error
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
