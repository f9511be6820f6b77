package event

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event/codec"
)

// Attribute is one CloudEvents context attribute or extension. The value has the canonical string
// form of CloudEvents 1.0, section 3.1. The value has no protocol escapes, because they depend on
// the protocol binding.
type Attribute struct{ Name, Value string }

// Message is one CloudEvent, ready for any bus.
type Message struct {
	ID  string
	Key Key // a marker has only group and resource, or the zero value

	// Marker means that the event is not about an object, but about a resource
	// (io.kuberelay.snapshot.started and .completed, io.kuberelay.resource.resolved), a writer, or
	// the cluster.
	Marker bool

	// Attributes holds every attribute of the event in a fixed order, including id, source,
	// specversion, type, datacontenttype, and partitionkey. No value is empty.
	Attributes []Attribute

	// Data is JSON: the Kubernetes object, its change if the attribute dataschema is [SchemaChange],
	// or the data of a marker.
	Data []byte

	memory *[]byte // pooled memory of Data, or nil

	// Expected is the position of the object's last event in the checkpoint, or 0. A bus
	// with compare-and-set refuses the message if the position is wrong.
	Expected uint64

	// Acked is the object's checkpoint entry after the acknowledgement, without Position.
	Acked Acked
}

// Free releases the memory of Data, which must not be used afterwards. Call it only after the
// acknowledgement, when the message cannot be sent again. Calling it is optional.
func (m *Message) Free() {
	if m.memory != nil {
		m.Data = nil
		codec.Free(m.memory)
		m.memory = nil
	}
}

// Attribute returns the value of the named attribute, or "" if it is absent.
func (m *Message) Attribute(name string) string {
	for _, a := range m.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// ContentTypeStructured is the media type of [Message.Structured].
const ContentTypeStructured = "application/cloudevents+json"

// Structured returns the whole event in the JSON event format of CloudEvents 1.0, on one line. The
// data is JSON, and is absent if Data is empty. Structured returns an error only if Data is not
// valid JSON.
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
			return nil, fmt.Errorf("encode event %s: data is not valid JSON", m.ID) // err might quote it
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// writeString appends s as a JSON string. It first checks whether s needs escapes, because
// attributes rarely do.
func writeString(b *bytes.Buffer, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := EncodeJSON(s) // encoding a string cannot fail
			b.Write(quoted)
			return
		}
	}
	b.WriteByte('"')
	b.WriteString(s)
	b.WriteByte('"')
}

// ParseStructured decodes an event in the JSON event format, from [Message.Structured] or another
// writer. It sets only ID, Attributes, and Data. Attributes keep their order, and values that are
// not strings take their canonical string form.
func ParseStructured(b []byte) (*Message, error) {
	m, err := parseStructured(b)
	if err != nil {
		return nil, fmt.Errorf("parse structured event: %w", err)
	}
	return m, nil
}

// maxMembers is the maximum number of members of an event in structured mode. An event has about
// 25.
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
		name := t.(string) // a member name, because the JSON is valid
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
		return nil, errors.New("the event has both data and data_base64")
	}
	m.ID = m.Attribute("id")
	if m.ID == "" || m.Attribute("specversion") != "1.0" {
		return nil, errors.New("not a CloudEvents 1.0 event: specversion must be 1.0, and id must be set")
	}
	return m, nil
}

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
		return fmt.Errorf("attribute %.100q is a JSON object or array, want a string, number, or boolean", name)
	}
	m.Attributes = append(m.Attributes, Attribute{Name: name, Value: v})
	return nil
}

// LastEpoch is the highest epoch that sorts correctly as text. In this epoch, versions have no
// order: any other version of an object counts as later, as if versions were not numbers.
const LastEpoch = 9999

// MaxEpochJump is the maximum by which an epoch on the bus may exceed the known epochs. New epochs
// are rare, because an epoch begins only when a resource's history is rolled back or another
// cluster takes over the name.
const MaxEpochJump = 100

const (
	epochDigits   = 4
	versionDigits = 20 // length of the largest uint64
)

// sequence returns the value of the attribute sequence: "0000.00000000000000012345". Up to epoch
// 9999, these values sort as text in the order of the object's states. A resourceVersion that is
// not a number, which an aggregated API can have, has no order and stays unchanged.
func sequence(epoch uint16, resourceVersion string) string {
	b := make([]byte, 0, epochDigits+1+versionDigits)
	b = appendPadded(b, strconv.Itoa(int(epoch)), epochDigits)
	b = append(b, '.')
	if !isNumber(resourceVersion) {
		return string(append(b, resourceVersion...))
	}
	return string(appendPadded(b, resourceVersion, versionDigits))
}

// NextEpoch returns the epoch after e, or LastEpoch if there is none.
func NextEpoch(e uint16) uint16 { return min(e, LastEpoch-1) + 1 }

// parseSequence returns the epoch in the attribute sequence of an event with this resourceVersion.
// It rejects every value that [sequence] does not return.
func parseSequence(s, resourceVersion string) (epoch uint16, err error) {
	digits, _, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil || n > LastEpoch:
		return 0, fmt.Errorf("sequence %.100q does not begin with an epoch", s)
	case s != text(sequence(uint16(n), resourceVersion)):
		return 0, fmt.Errorf("sequence %.100q does not match resourceversion %.100q", s, resourceVersion)
	}
	return uint16(n), nil
}

func appendPadded(b []byte, digits string, width int) []byte {
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
