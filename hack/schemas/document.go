package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// object is a JSON object whose members keep their order. Names and values alternate.
type object []any

// with returns a copy of the object with more members at the end.
func (o object) with(members ...any) object { return append(o[:len(o):len(o)], members...) }

// MarshalJSON returns the object as JSON.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := 0; i+1 < len(o); i += 2 {
		name, isText := o[i].(string)
		if !isText {
			return nil, fmt.Errorf("%v is not the name of a member", o[i])
		}
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encode(&b, name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encode(&b, o[i+1]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode writes a value as JSON without HTML escapes.
func encode(b *bytes.Buffer, value any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// asJSON returns a document as indented JSON. A list of strings without spaces is on one line.
func asJSON(document object) ([]byte, error) {
	var compact, indented bytes.Buffer
	if err := encode(&compact, document); err != nil {
		return nil, err
	}
	err := json.Indent(&indented, compact.Bytes(), "", "  ")
	return texts.ReplaceAllFunc(indented.Bytes(), func(list []byte) []byte {
		return bytes.Join(bytes.Fields(list), []byte(" "))
	}), err
}

// texts matches an indented list of strings without spaces.
var texts = regexp.MustCompile(`\[\s+"[^"\s]*"(,\s+"[^"\s]*")*\s+\]`)

// asYAML returns a document as YAML, in block style.
func asYAML(document object) ([]byte, error) {
	text, err := asJSON(document)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	plain(&node)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&node); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// plain removes the JSON style from a node and from all nodes below it. Empty collections and lists of
// scalars stay on one line.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.ScalarNode || len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
}
