package event

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// changeData is the data of the event of c: the object, or its metadata if it is
// to be truncated, or its identity if no more is known. Memory is what it is in, where
// that may be used again.
func changeData(c Change) (data []byte, memory *[]byte, err error) {
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
	if o.Body.packed == nil {
		return o.Body.bytes, nil, nil
	}
	memory = buffers.Get().(*[]byte)
	*memory, err = o.Body.into(*memory)
	if data = *memory; cap(data) > 4*len(data) { // there may be hundreds in flight: none holds much more than it needs
		data = bytes.Clone(data)
		giveBack(memory)
		memory = nil
	}
	return data, memory, err
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
	var metadata json.RawMessage
	s := jsonscan.New(object)
	for s.Object(); s.Next(); {
		is := string(s.Key()) == "metadata"
		if v := s.Skip(); is {
			metadata = v
		}
	}
	switch {
	case s.End() != nil:
		return nil, s.Err() // says nothing of it
	case metadata == nil:
		return nil, errors.New("object has no metadata")
	}
	return metadata, nil
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
