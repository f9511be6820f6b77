package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// AckedFrom tells what an object's event that was read back from the bus says of
// it, Position left to the caller. Get gives the value of a named attribute, ""
// if it is absent, with the escapes of the protocol undone. A marker and an event
// of another kind are errors.
func AckedFrom(get func(attribute string) string) (Acked, error) {
	fail := func(err error) (Acked, error) {
		return Acked{}, fmt.Errorf("read event %q: %w", get("id"), err)
	}
	t := Type(get("type"))
	switch t {
	case Created, Updated, Deleted, Snapshot, Deselected:
	default:
		return fail(fmt.Errorf("type %q is not of an object", t))
	}
	epoch, err := epochOf(get("sequence"))
	if err != nil {
		return fail(err)
	}
	a := Acked{
		UID:             unescape(get("uid"), '%'), // undoes text
		ResourceVersion: unescape(get("resourceversion"), '%'),
		Epoch:           epoch,
		Deleted:         t.Gone(),
		Deselected:      t == Deselected,
	}
	if a.UID == "" {
		return fail(errors.New("no uid"))
	}
	if a.Digest, err = parseDigest(get(digest)); err != nil {
		return fail(err)
	}
	return a, nil
}

// ObjectFromData makes an object of an event that was read back from the bus: the
// last state to publish with a delete that was made while we were down. Body is
// nil where the bus does not have the whole object, that is where the event is
// truncated or of unknown final state, so that a delete made of it says so. Get is
// as in [AckedFrom]; data is copied.
func ObjectFromData(get func(attribute string) string, data []byte) (*Object, error) {
	data, err := ObjectIn(get, data)
	if err != nil {
		return nil, fmt.Errorf("read event %q: %w", get("id"), err)
	}
	o, err := objectFromData(data)
	if err == nil && text(string(o.UID)) != get("uid") {
		err = fmt.Errorf("data is of uid %q, not %q", o.UID, get("uid"))
	}
	if err != nil {
		return nil, fmt.Errorf("read event %q: %w", get("id"), err)
	}
	if get(truncated) != "true" && get(finalStateUnknown) != "true" {
		o.Body = JSON(bytes.Clone(data))
		if o.Digest, err = parseDigest(get(digest)); err != nil {
			return nil, fmt.Errorf("read event %q: %w", get("id"), err)
		}
	}
	return o, nil
}

// ObjectIn gives the object in the data of an event, which is all of it, or a part of it
// where the event's data is a change. What it gives shares the memory of data. Get is as in [AckedFrom].
func ObjectIn(get func(attribute string) string, data []byte) ([]byte, error) {
	if get(dataSchema) != SchemaChange {
		return data, nil
	}
	object, err := valueOf(data, "object")
	if err != nil || object == nil {
		return nil, errors.New("data is not a change of a Kubernetes object")
	}
	return object, nil
}

func objectFromData(data []byte) (*Object, error) {
	var object, metadata map[string]json.RawMessage // not structs, which encoding/json matches regardless of case
	if json.Unmarshal(data, &object) != nil || json.Unmarshal(object["metadata"], &metadata) != nil {
		return nil, errors.New("data is not a Kubernetes object")
	}
	o := &Object{}
	var uid string
	for _, field := range []struct {
		to   *string
		from json.RawMessage
	}{
		{&o.APIVersion, object["apiVersion"]},
		{&o.Kind, object["kind"]},
		{&o.Namespace, metadata["namespace"]},
		{&o.Name, metadata["name"]},
		{&uid, metadata["uid"]},
		{&o.ResourceVersion, metadata["resourceVersion"]},
	} {
		if field.from != nil && json.Unmarshal(field.from, field.to) != nil {
			return nil, errors.New("data is not a Kubernetes object")
		}
	}
	o.UID = types.UID(uid)
	return o, nil
}
