package event

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// ContentTypeStructured is the media type of [Message.Structured].
const ContentTypeStructured = "application/cloudevents+json"

// Structured returns the whole event in the JSON event format of CloudEvents 1.0, on one
// line, with the data as JSON, and without data if there is none. It returns an error only if
// Data is not valid JSON.
func (m *Message) Structured() ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(m.Data) + 64*len(m.Attributes))
	b.WriteByte('{')
	separator := ""
	for _, a := range m.Attributes {
		b.WriteString(separator)
		separator = ","
		b.WriteByte('"')
		b.WriteString(a.Name) // lower-case letters and digits only
		b.WriteString(`":`)
		if a.Name == finalStateUnknown || a.Name == truncated {
			b.WriteString(a.Value)
		} else {
			writeString(&b, a.Value)
		}
	}
	if len(m.Data) > 0 { // a consistency point on Kafka has none
		b.WriteString(separator)
		b.WriteString(`"data":`)
		if err := json.Compact(&b, m.Data); err != nil {
			return nil, fmt.Errorf("encode event %s: data is not valid JSON", m.ID) // err may quote it
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// writeString appends s as JSON. Nearly all attributes need no escapes.
func writeString(b *bytes.Buffer, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := encode(s) // a string cannot fail
			b.Write(quoted)
			return
		}
	}
	b.WriteByte('"')
	b.WriteString(s)
	b.WriteByte('"')
}

// ParseStructured decodes an event in the JSON event format, from [Message.Structured] or
// another writer. It sets only ID, Attributes and Data. Attributes keep their order, and
// values that are no strings get their canonical string form.
func ParseStructured(b []byte) (*Message, error) {
	m, err := parseStructured(b)
	if err != nil {
		return nil, fmt.Errorf("parse structured event: %w", err)
	}
	return m, nil
}

// maxMembers bounds the members of an event in structured mode. An event has about 25.
const maxMembers = 1024

func parseStructured(b []byte) (*Message, error) {
	if !json.Valid(b) {
		return nil, errors.New("not valid JSON")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	m, seen := &Message{}, map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // of valid JSON, a member's name
		if seen[name] {
			return nil, fmt.Errorf("duplicate attribute %.100q", name)
		}
		if len(seen) == maxMembers {
			return nil, fmt.Errorf("more than %d attributes", maxMembers)
		}
		seen[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if err := m.setMember(name, value); err != nil {
			return nil, err
		}
	}
	if seen["data"] && seen["data_base64"] {
		return nil, errors.New("both data and data_base64")
	}
	m.ID = m.Attribute("id")
	if m.ID == "" || m.Attribute("specversion") != "1.0" {
		return nil, errors.New("not a CloudEvent of version 1.0")
	}
	return m, nil
}

// setMember sets one member of the event's JSON object.
func (m *Message) setMember(name string, value json.RawMessage) error {
	switch name {
	case "data":
		m.Data = value
		return nil
	case "data_base64":
		var s string
		err := json.Unmarshal(value, &s)
		if err == nil {
			m.Data, err = base64.StdEncoding.DecodeString(s)
		}
		if err != nil {
			return errors.New("data_base64 is not base64")
		}
		return nil
	}
	v := string(value)
	switch value[0] {
	case '"':
		if err := json.Unmarshal(value, &v); err != nil {
			return err
		}
	case 'n': // null: absent
		return nil
	case '{', '[':
		return fmt.Errorf("attribute %.100q is not a simple value", name)
	}
	m.Attributes = append(m.Attributes, Attribute{Name: name, Value: v})
	return nil
}
