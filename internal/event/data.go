package event

import (
	"encoding/json"
	"errors"
	"fmt"
)

// changeData is the data of the event of c: the object, or its metadata if it is
// to be truncated, or its identity if no more is known.
func changeData(c Change) ([]byte, error) {
	o := c.Object
	switch {
	case o.Body == nil:
		return encode(partialObject{apiVersion(c), kind(c), identity{
			Name: o.Name, Namespace: o.Namespace, UID: string(o.UID), ResourceVersion: o.ResourceVersion,
		}})
	case c.Truncated:
		metadata, err := member(o.Body, "metadata")
		if err != nil {
			return nil, err
		}
		return encode(partialObject{apiVersion(c), kind(c), metadata})
	}
	return o.Body, nil
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

// member gives one member of a JSON object, undecoded. It goes through a map
// because encoding/json matches struct fields regardless of case, and a custom
// resource may well have a field called Metadata.
func member(object []byte, name string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, errors.New("object is not valid JSON") // err may quote it
	}
	m, ok := members[name]
	if !ok {
		return nil, fmt.Errorf("object has no %s", name)
	}
	return m, nil
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
