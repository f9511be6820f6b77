package binding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Decode decodes the event in a message, in either content mode. It accepts the events of every writer that
// follows the binding. It rejects a message in which an attribute occurs twice. The result has only ID,
// Attributes, and Data. In binary mode, the attributes are sorted by name.
func Decode(headers natsgo.Header, data []byte) (*event.Message, error) {
	if isAmbiguous(headers) {
		return nil, errAmbiguous
	}
	if isStructured(headers) {
		return event.ParseStructured(data)
	}
	m := &event.Message{Data: data}
	for name, values := range headers {
		if len(values) == 0 || len(name) <= len(attributePrefix) || !strings.EqualFold(name[:len(attributePrefix)], attributePrefix) {
			continue
		}
		value, err := decodeValue(values[0])
		if err != nil {
			return nil, fmt.Errorf("decode event: header %q: %w", name, err)
		}
		m.Attributes = append(m.Attributes, event.Attribute{Name: strings.ToLower(name[len(attributePrefix):]), Value: value})
	}
	slices.SortFunc(m.Attributes, func(a, b event.Attribute) int { return cmp.Compare(a.Name, b.Name) })
	m.ID = m.Attribute("id")
	if !isEvent(m.Attribute) {
		return nil, errors.New("decode event: not a CloudEvent of version 1.0")
	}
	return m, nil
}

var errAmbiguous = errors.New("decode event: an attribute occurs twice")

// isAmbiguous reports whether a header of the event occurs twice, possibly in different case. The
// server and NATS clients keep both values, and readers differ in which one they use.
func isAmbiguous(headers natsgo.Header) bool {
	mixedCase := false // a header of the event is not in lower case
	for name, values := range headers {
		switch lower := strings.ToLower(name); {
		case !isEventHeader(lower):
		case len(values) > 1:
			return true
		case lower != name:
			mixedCase = true
		}
	}
	if !mixedCase {
		return false
	}
	seen := map[string]bool{}
	for name := range headers {
		lower := strings.ToLower(name)
		if isEventHeader(lower) && seen[lower] {
			return true
		}
		seen[lower] = true
	}
	return false
}

// isEventHeader reports whether a header, in lower case, belongs to the event rather than to the
// NATS message.
func isEventHeader(lower string) bool {
	return lower == contentTypeHeader || strings.HasPrefix(lower, attributePrefix) || strings.HasPrefix(lower, statePrefix)
}

func isEvent(get func(attribute string) string) bool {
	return get("id") != "" && get("specversion") == "1.0"
}

func isStructured(headers natsgo.Header) bool {
	t := get(headers, contentTypeHeader)
	return len(t) >= len(structuredType) && strings.EqualFold(t[:len(structuredType)], structuredType)
}

// Attributes returns a function that returns the value of an attribute, in either content mode. If
// the message is not an event, the function returns "" for every attribute. In structured mode,
// Attributes reads Kuberelay's own headers, so data may be nil. It reads data only for an event of
// another writer, which lacks these headers.
func Attributes(headers natsgo.Header, data []byte) func(attribute string) string {
	if isStructured(headers) && get(headers, stateHeader("id")) == "" {
		if m, err := Decode(headers, data); err == nil {
			return m.Attribute
		}
	}
	return stateOf(headers)
}

// stateOf is like Attributes, but reads only the headers.
func stateOf(headers natsgo.Header) func(attribute string) string {
	prefix := attributeHeader
	switch {
	case isAmbiguous(headers):
		return func(string) string { return "" }
	case isStructured(headers):
		prefix = stateHeader
	case !isEvent(func(attribute string) string { return get(headers, prefix(attribute)) }):
		return func(string) string { return "" }
	}
	return func(attribute string) string {
		v, err := decodeValue(get(headers, prefix(attribute)))
		if err != nil {
			return ""
		}
		return v
	}
}

// get returns the value of a header. It prefers the exact name, but accepts any case.
func get(headers natsgo.Header, name string) string {
	if v := headers[name]; len(v) > 0 {
		return v[0]
	}
	for k, v := range headers {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}
