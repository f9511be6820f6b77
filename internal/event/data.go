package event

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// content is what an event says of an object, and of the state before it.
type content struct {
	data    []byte
	memory  *[]byte // that data is in, where it may be used again
	changed string  // the attribute
}

// content makes the data of the event of c. A state before that cannot be read counts as
// one that is not known: an object is not kept from the bus for what it was.
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
		defer giveBack(memory)
		if err == nil {
			result.changed, patch, err = b.compare(c, previous, result.data)
		}
		if err != nil {
			previous, patch = nil, nil
		}
	}
	if b.Data != DataChange {
		return result, nil
	}
	if c.Truncated {
		previous, patch = nil, nil
	}
	defer giveBack(result.memory)
	result.data, result.memory = changeData(result.data, previous, patch)
	return result, nil
}

// compare gives the attribute changed, and the patch if it is asked for. Data is the
// object's, unless that is truncated.
func (b Builder) compare(c Change, previous, data []byte) (changed string, patch []byte, err error) {
	if c.Truncated {
		var memory *[]byte
		data, memory, err = unpacked(c.Object.Body)
		defer giveBack(memory)
		if err != nil {
			return "", nil, err
		}
	}
	if changed, err = changedPlaces(previous, data); err == nil && b.Data == DataChange && !c.Truncated {
		patch, err = PatchOf(previous, data)
	}
	return changed, patch, err
}

// objectData is the object, or its metadata if it is to be truncated, or its identity if
// no more is known.
func objectData(c Change) (data []byte, memory *[]byte, err error) {
	o := c.Object
	if o.Body.None() {
		data, err = encode(partialObject{apiVersion(c), kind(c), identity{
			Name: o.Name, Namespace: o.Namespace, UID: string(o.UID), ResourceVersion: o.ResourceVersion,
		}})
		return data, nil, err
	}
	if c.Truncated {
		data, err = truncate(c)
		return data, nil, err
	}
	if data, memory, err = unpacked(o.Body); err != nil || memory == nil {
		return data, memory, err
	}
	data, memory = inMemory(memory)
	return data, memory, nil
}

// unpacked gives the text of a body and the memory that it is in; nil if that is the
// body's own.
func unpacked(b Body) (text []byte, memory *[]byte, err error) {
	if b.packed == nil {
		return b.bytes, nil, nil
	}
	memory = buffers.Get().(*[]byte)
	*memory, err = b.into(*memory)
	return *memory, memory, err
}

// changeData is the data of an event of which the data is a change. Previous and patch may
// be nil.
func changeData(object, previous, patch []byte) (data []byte, memory *[]byte) {
	memory = buffers.Get().(*[]byte)
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

// inMemory gives what is in some memory as data, with that memory unless it is much more
// than needed: there may be hundreds in flight.
func inMemory(memory *[]byte) ([]byte, *[]byte) {
	data := *memory
	if cap(data) > 4*len(data) {
		data = bytes.Clone(data)
		giveBack(memory)
		memory = nil
	}
	return data, memory
}

func truncate(c Change) ([]byte, error) {
	body, err := c.Object.Body.JSON()
	if err != nil {
		return nil, err
	}
	metadata, err := metadataOf(body)
	if err != nil {
		return nil, err
	}
	return encode(partialObject{apiVersion(c), kind(c), metadata})
}

// partialObject is an object without its spec and status, as the Kubernetes API
// itself serves it under the name PartialObjectMetadata.
type partialObject struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   any    `json:"metadata"`
}

// identity is the metadata that the checkpoint knows of an object.
type identity struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace,omitempty"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// metadataOf gives the metadata of an object, undecoded.
func metadataOf(object []byte) (json.RawMessage, error) {
	metadata, err := valueOf(object, "metadata")
	switch {
	case err != nil:
		return nil, err // says nothing of it
	case metadata == nil:
		return nil, errors.New("object has no metadata")
	}
	return metadata, nil
}

// valueOf gives the value of a member of an object, nil if there is none.
func valueOf(object []byte, name string) ([]byte, error) {
	var value []byte
	s := jsonscan.New(object)
	for s.Object(); s.Next(); {
		is := string(s.Key()) == name
		if v := s.Skip(); is {
			value = v
		}
	}
	return value, s.End()
}

// encode is json.Marshal without the escaping of '<', '>' and '&', which is for
// HTML. Keys of maps come out sorted.
func encode(v any) ([]byte, error) {
	var w appendWriter
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return w[:len(w)-1], nil // the encoder ends with a newline
}

// appendWriter keeps what is written to it. The encoder writes once, so the result
// is allocated once, in its size: it may stay in a cache for long.
type appendWriter []byte

func (w *appendWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}
