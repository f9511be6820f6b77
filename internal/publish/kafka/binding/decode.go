package binding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// ErrTombstone means that a record has no value. The record is not an event, whatever its
// headers, and log compaction removes its key.
var ErrTombstone = errors.New("the record is a tombstone")

// Attributes returns a function that looks up the attributes of the event in a record, in either
// mode. [event.AckedFrom] and [event.ObjectFromData] take this function. The function returns ""
// for an absent attribute. It refers to headers and value, so they must not change while it is in
// use. In structured mode, Attributes parses the whole value.
//
// Attributes returns [ErrTombstone] for a record without a value, and another error if the
// record is not a CloudEvent of version 1.0.
func Attributes(headers []recordbatch.Header, value []byte) (get func(attribute string) string, structured bool, err error) {
	switch {
	case value == nil:
		return nil, false, ErrTombstone
	case isStructured(headers):
		m, err := event.ParseStructured(value)
		if err != nil {
			return nil, true, err
		}
		return m.Attribute, true, nil
	}
	get = func(attribute string) string { return lookUp(headers, attribute) }
	return get, false, check(headers)
}

// Removal returns a function that looks up the attributes of the removal that a tombstone
// follows. ok is false if the tombstone was not made by [Tombstone].
func Removal(headers []recordbatch.Header) (get func(attribute string) string, ok bool) {
	get = func(attribute string) string {
		for _, h := range slices.Backward(headers) {
			if h.Key == tombstonePrefix+attribute {
				return string(h.Value)
			}
		}
		return ""
	}
	return get, get("type") != ""
}

// Decode decodes the event in a record, in either mode, including an event from another writer that
// follows the binding. It sets only ID, Attributes, and Data. In binary mode, the attributes are
// sorted by name, and Data is value itself. Decode returns the same errors as [Attributes].
func Decode(headers []recordbatch.Header, value []byte) (*event.Message, error) {
	switch {
	case value == nil:
		return nil, ErrTombstone
	case isStructured(headers):
		return event.ParseStructured(value)
	}
	if err := check(headers); err != nil {
		return nil, err
	}
	m := &event.Message{ID: lookUp(headers, "id"), Data: value, Attributes: make([]event.Attribute, 0, len(headers))}
	for _, h := range slices.Backward(headers) { // the last header of an attribute wins, as in lookUp
		if name, ok := attributeOf(h); ok {
			m.Attributes = append(m.Attributes, event.Attribute{Name: name, Value: string(h.Value)})
		}
	}
	slices.SortStableFunc(m.Attributes, func(a, b event.Attribute) int { return cmp.Compare(a.Name, b.Name) })
	m.Attributes = slices.CompactFunc(m.Attributes, func(a, b event.Attribute) bool { return a.Name == b.Name })
	return m, nil
}

// IsControl reports whether a record without a value can be a control record from
// [EncodeControl]. The caller must also check that the key does not belong to an object.
func IsControl(headers []recordbatch.Header) bool { return lookUp(headers, "type") != "" }

// DecodeControl decodes a control record from [EncodeControl]. It also decodes a marker whose
// record has a value, as earlier releases write it. DecodeControl sets the same fields as [Decode].
func DecodeControl(headers []recordbatch.Header, value []byte) (*event.Message, error) {
	if value != nil || !IsControl(headers) {
		return Decode(headers, value)
	}
	value = []byte{}
	for _, h := range headers {
		if h.Key == dataHeader {
			value = h.Value
		}
	}
	return Decode(headers, value)
}

// check returns an error if the headers are not those of an event in binary mode.
func check(headers []recordbatch.Header) error {
	for _, h := range headers {
		if _, ok := attributeOf(h); ok && !utf8.Valid(h.Value) {
			return fmt.Errorf("decode event: the value of header %q is not UTF-8", h.Key)
		}
	}
	if lookUp(headers, "id") == "" || lookUp(headers, "specversion") != "1.0" {
		return errors.New("decode event: not a CloudEvent of version 1.0")
	}
	return nil
}

// attributeOf returns the name of the attribute that a header holds in binary mode. Names
// are case-insensitive, as in the SDK. An attribute without a value is absent.
func attributeOf(h recordbatch.Header) (name string, ok bool) {
	switch {
	case len(h.Value) == 0:
		return "", false
	case len(h.Key) > len(attributePrefix) && strings.EqualFold(h.Key[:len(attributePrefix)], attributePrefix):
		return strings.ToLower(h.Key[len(attributePrefix):]), true
	case strings.EqualFold(h.Key, contentTypeHeader):
		return "datacontenttype", true
	}
	return "", false
}

// lookUp returns the value of an attribute in binary mode. If several headers hold the
// attribute, the last one wins, as in the SDK and in Headers.lastHeader of the Java client.
func lookUp(headers []recordbatch.Header, attribute string) string {
	for _, h := range slices.Backward(headers) {
		if name, ok := attributeOf(h); ok && name == attribute {
			return string(h.Value)
		}
	}
	return ""
}

func isStructured(headers []recordbatch.Header) bool {
	for _, h := range slices.Backward(headers) {
		if strings.EqualFold(h.Key, contentTypeHeader) {
			return len(h.Value) >= len(structuredType) && strings.EqualFold(string(h.Value[:len(structuredType)]), structuredType)
		}
	}
	return false
}
