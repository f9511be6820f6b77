package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Event is a CloudEvent. Its data is JSON, which this type doesn't check.
type Event struct {
	attributes map[string]string
	Data       []byte

	// Operation is the header KV-Operation on NATS, which says what the event does to the key of a
	// key-value bucket that copies the stream.
	Operation string
}

// Get returns an attribute, or "" if it is absent. It decodes the escapes of the binding, but not
// those of [Event.Text].
func (e Event) Get(name string) string { return e.attributes[name] }

// Text decodes and returns an attribute in which the characters that CloudEvents forbids are
// percent-encoded.
func (e Event) Text(name string) (string, error) { return text(e.Get(name), false) }

// maxText is the maximum length in bytes of the attributes that a verification keeps in memory. No
// attribute of a forwarder is longer. A compressed record of a few kilobytes can have an attribute of
// many megabytes.
const maxText = 4096

const structuredJSON = "application/cloudevents+json"

// FromNATS parses a NATS message, in either content mode.
func FromNATS(headers map[string][]string, data []byte) (Event, error) {
	e := Event{attributes: make(map[string]string, len(headers)), Data: data}
	mode := ""
	for name, values := range headers {
		if name == "KV-Operation" && len(values) > 0 {
			e.Operation = values[0] // as a client of the bucket reads it
		}
		lower := strings.ToLower(name)
		ours := strings.HasPrefix(lower, "ce-")
		if !ours && lower != "content-type" {
			continue
		}
		if name != lower || len(values) != 1 {
			return Event{}, fmt.Errorf("header %q must be in lower case and have one value", name)
		}
		if !ours {
			mode = values[0]
			continue
		}
		value, err := header(values[0])
		if err == nil {
			err = e.set(name[len("ce-"):], value)
		}
		if err != nil {
			return Event{}, fmt.Errorf("header %q: %w", name, err)
		}
	}
	return e.withMode(mode)
}

// IsEventOfObject reports whether a NATS message appears to be an event of an object. It reads only
// the headers, which name the UID in either content mode. In structured mode, the forwarder repeats
// the UID in the header kuberelay-uid.
func IsEventOfObject(headers map[string][]string) bool {
	return len(headers["ce-uid"]) > 0 || len(headers["kuberelay-uid"]) > 0
}

// Header is a header of a Kafka record.
type Header struct {
	Key   string
	Value []byte
}

// FromKafka parses a Kafka record, in either content mode.
func FromKafka(headers []Header, value []byte) (Event, error) {
	e := Event{attributes: make(map[string]string, len(headers)), Data: value}
	mode := ""
	for _, h := range headers {
		lower := strings.ToLower(h.Key)
		ours := strings.HasPrefix(lower, "ce_")
		var err error
		switch {
		case !ours && lower != "content-type":
			continue
		case h.Key != lower:
			err = errors.New("it is not in lower case")
		case !utf8.Valid(h.Value):
			err = errors.New("it is not UTF-8")
		case ours:
			err = e.set(h.Key[len("ce_"):], string(h.Value))
		case mode != "":
			err = errors.New("it occurs twice")
		default:
			mode = string(h.Value)
		}
		if err != nil {
			return Event{}, fmt.Errorf("header %q: %w", h.Key, err)
		}
	}
	if isStructured(mode) {
		return e.withMode(mode)
	}
	if mode != "" { // in binary mode, content-type is the attribute datacontenttype
		if err := e.set("datacontenttype", mode); err != nil {
			return Event{}, err
		}
	}
	return e.withMode("")
}

// ControlFromKafka parses a control record on Kafka, which has no value. In either content mode,
// headers hold its attributes and its data.
func ControlFromKafka(headers []Header) (Event, error) {
	var data []byte
	for _, h := range headers {
		switch {
		case h.Key == "content-type" && isStructured(string(h.Value)):
			return Event{}, errors.New("it is in structured mode, but has no value")
		case h.Key == "kuberelay_data" && data != nil:
			return Event{}, errors.New("it has data twice")
		case h.Key == "kuberelay_data":
			data = h.Value
		}
	}
	return FromKafka(headers, data)
}

func isStructured(contentType string) bool {
	return contentType == structuredJSON || strings.HasPrefix(contentType, structuredJSON+";")
}

// withMode finishes parsing an event. mode is the content type of structured mode, or "" for binary
// mode.
func (e Event) withMode(mode string) (Event, error) {
	if mode != "" {
		if !isStructured(mode) {
			return Event{}, fmt.Errorf("content-type %q is not %s", mode, structuredJSON)
		}
		if len(e.attributes) > 0 {
			return Event{}, errors.New("it is both in binary and in structured mode")
		}
		document, err := structured(e.Data)
		if err != nil {
			return Event{}, err
		}
		document.Operation = e.Operation
		e = document
	}
	for _, name := range []string{"id", "source", "specversion", "type"} {
		if e.Get(name) == "" {
			return Event{}, fmt.Errorf("it has no attribute %s", name)
		}
	}
	for _, name := range []string{"id", "uid", "resourceversion", "previousversion", "apiversion", "group", "resource"} {
		if n := len(e.Get(name)); n > maxText {
			return Event{}, fmt.Errorf("attribute %s has %d bytes, want at most %d", name, n, maxText)
		}
	}
	if v := e.Get("specversion"); v != "1.0" {
		return Event{}, fmt.Errorf("specversion is %q, want 1.0", v)
	}
	return e, nil
}

// set adds an attribute. A second value is an error.
func (e Event) set(name, value string) error {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("%q is not the name of an attribute", name)
	}
	if _, again := e.attributes[name]; again {
		return fmt.Errorf("attribute %s occurs twice", name)
	}
	if value == "" {
		return fmt.Errorf("attribute %s is empty", name)
	}
	e.attributes[name] = value
	return nil
}

// structured parses an event in the JSON event format.
func structured(document []byte) (Event, error) {
	e := Event{attributes: map[string]string{}}
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Event{}, errors.New("it is not a JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return Event{}, errors.New("it is not valid JSON")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return Event{}, errors.New("it is not valid JSON")
		}
		if name == "data" && e.Data == nil {
			e.Data = value
			continue
		}
		s, err := attributeValue(value)
		if err == nil {
			err = e.set(name.(string), s) // the name of a member is always a string
		}
		if err != nil {
			return Event{}, fmt.Errorf("member %q: %w", name, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return Event{}, errors.New("it is not valid JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Event{}, errors.New("it is more than a JSON object")
	}
	if e.Data == nil {
		return Event{}, errors.New("it has no data")
	}
	return e, nil
}

// attributeValue returns the canonical string of an attribute: a string, a boolean, or an integer
// (CloudEvents 1.0, section 3.1).
func attributeValue(value json.RawMessage) (string, error) {
	switch s := string(value); {
	case s == "true", s == "false":
		return s, nil
	case s[0] == '"':
		var v string
		if err := json.Unmarshal(value, &v); err != nil {
			return "", errors.New("it is not a string")
		}
		return v, nil
	default:
		var n int32
		if err := json.Unmarshal(value, &n); err != nil || s == "null" {
			return "", errors.New("it is not a string, a boolean, or an integer")
		}
		return s, nil
	}
}
