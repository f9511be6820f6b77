package event

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/kuberelay/kuberelay/internal/event/codec"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// content is the part of an event that depends on the object's content.
type content struct {
	data    []byte
	memory  *[]byte // the pooled memory of data, or nil
	changed string  // the value of the attribute "changed"
}

// content builds the event data for c. If the previous state can't be read, content omits that
// state, because the object itself must still be published.
func (b Builder) content(c Change) (content, error) {
	var result content
	var err error
	if result.data, result.memory, err = objectData(c); err != nil {
		return content{}, err
	}
	var previous, patch []byte
	if before := c.before(); before != nil {
		var memory *[]byte
		previous, memory, err = unpacked(before.Body)
		defer codec.Free(memory)
		if err == nil {
			result.changed, patch, err = b.compare(c, previous, result.data)
		}
		if err != nil || isTooDeep(previous) {
			previous, patch = nil, nil
		}
	}
	if b.Data != DataChange {
		return result, nil
	}
	if c.Truncated {
		previous, patch = nil, nil
	}
	defer codec.Free(result.memory)
	result.data, result.memory = changeData(result.data, previous, patch)
	return result, nil
}

// compare returns the value of the attribute "changed", and the patch if the event needs one. data
// is the object, unless c is truncated.
func (b Builder) compare(c Change, previous, data []byte) (changed string, patch []byte, err error) {
	if c.Truncated {
		var memory *[]byte
		data, memory, err = unpacked(c.Object.Body)
		defer codec.Free(memory)
		if err != nil {
			return "", nil, err
		}
	}
	if changed, err = changedPlaces(previous, data); err == nil && b.Data == DataChange && !c.Truncated {
		patch, err = PatchOf(previous, data)
	}
	return changed, patch, err
}

// objectData returns the object as JSON. It returns only the metadata if c is truncated, and only
// the identity if nothing else is known.
func objectData(c Change) (data []byte, memory *[]byte, err error) {
	o := c.Object
	if o.Body.None() {
		data, err = EncodeJSON(partialObject{apiVersion(c), kind(c), identity{
			Name: o.Name, Namespace: o.Namespace, UID: string(o.UID), ResourceVersion: o.ResourceVersion,
		}})
		return data, nil, err
	}
	if c.Truncated {
		data, err = truncate(c)
		return data, nil, err
	}
	if data, memory, err = unpacked(o.Body); err == nil && isTooDeep(data) {
		codec.Free(memory)
		return nil, nil, ErrTooDeep
	}
	if err != nil || memory == nil {
		return data, memory, err
	}
	data, memory = inMemory(memory)
	return data, memory, nil
}

// ErrTooDeep means that an object is nested too deeply for its event. Most parsers accept only
// 10,000 levels and would reject the event as invalid JSON. API servers accept such an object.
var ErrTooDeep = errors.New("the object is nested too deeply")

// envelopeLevels is the number of nesting levels that may be added to the object: by structured
// mode, by data in the form of a change, and by an envelope of the subscriber.
const envelopeLevels = 10

func isTooDeep(object []byte) bool {
	if bytes.Count(object, []byte("{"))+bytes.Count(object, []byte("[")) < 9_000 { // nearly every object
		return false
	}
	s := jsonscan.NewAt(envelopeLevels, object)
	s.Skip()
	return s.Err() != nil
}

// unpacked returns the text of a body and the pooled memory that holds it. memory is nil if the
// text is the body's own memory.
func unpacked(b Body) (text []byte, memory *[]byte, err error) {
	if b.packed == nil {
		return b.bytes, nil, nil
	}
	memory = codec.Buffer()
	*memory, err = b.into(*memory)
	return *memory, memory, err
}

// changeData returns event data in the form of a change. previous and patch can be nil.
func changeData(object, previous, patch []byte) (data []byte, memory *[]byte) {
	memory = codec.Buffer()
	text := (*memory)[:0]
	for _, member := range []struct {
		before string
		value  []byte
	}{{`{"object":`, object}, {`,"previous":`, previous}, {`,"patch":`, patch}} {
		text = append(text, member.before...)
		if member.value == nil {
			member.value = []byte("null")
		}
		text = append(text, member.value...)
	}
	text = append(text, '}')
	*memory = text
	return inMemory(memory)
}

// inMemory returns the content of memory as data, and memory itself. If memory is much larger than
// its content, inMemory copies the content and returns memory to the pool, because hundreds of
// events can be in flight. It then returns nil as the memory.
func inMemory(memory *[]byte) ([]byte, *[]byte) {
	data := *memory
	if cap(data) > 4*len(data) {
		data = bytes.Clone(data)
		codec.Free(memory)
		memory = nil
	}
	return data, memory
}

// TruncatedAnnotation is the annotation that package replica and "forwarder get" set to "true" on a
// truncated object. The object on the bus does not have it.
const TruncatedAnnotation = "kuberelay.io/truncated"

func truncate(c Change) ([]byte, error) {
	body, err := c.Object.Body.JSON()
	if err != nil {
		return nil, err
	}
	metadata, err := metadataOf(body)
	if err != nil {
		return nil, err
	}
	return EncodeJSON(partialObject{apiVersion(c), kind(c), metadata})
}

// IsTruncated reports whether data equals the data that [Builder.Message] builds for a truncated
// event of o. It ignores the fields that [SameContent] ignores.
func IsTruncated(data Body, o *Object, r Resource) (bool, error) {
	want, err := truncate(Change{Object: o, Resource: r})
	if err != nil {
		return false, err
	}
	return SameContent(data, JSON(want))
}

// partialObject is an object without spec and status, as in the PartialObjectMetadata of
// the Kubernetes API.
type partialObject struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   any    `json:"metadata"`
}

// identity is the object metadata that the checkpoint stores.
type identity struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace,omitempty"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

func metadataOf(object []byte) (json.RawMessage, error) {
	metadata, err := valueOf(object, "metadata")
	switch {
	case err != nil:
		return nil, err // does not quote the object
	case metadata == nil:
		return nil, errors.New("object has no metadata")
	}
	return metadata, nil
}

// valueOf returns the value of the named member of an object, or nil if the object has no such
// member.
func valueOf(object []byte, name string) ([]byte, error) {
	var value []byte
	s := jsonscan.New(object)
	for s.Object(); s.Next(); {
		found := string(s.Key()) == name
		if v := s.Skip(); found {
			value = v
		}
	}
	return value, s.End()
}

// EncodeJSON is json.Marshal without the HTML escaping of '<', '>', and '&'. Keys of maps are
// sorted.
func EncodeJSON(v any) ([]byte, error) {
	var w appendWriter
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return w[:len(w)-1], nil // the encoder ends with a newline
}

// appendWriter stores the bytes written to it. The encoder writes once, so the result is allocated
// at its exact size. The size matters because the result might stay in a cache for a long time.
type appendWriter []byte

func (w *appendWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}
