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

// ErrTombstone says that a record has no value. Log compaction takes it for the end of
// its key, and it is no event of ours, whatever its headers.
var ErrTombstone = errors.New("the record is a tombstone")

// Attributes gives the attributes of the event that a record holds, in either mode, in the
// form that [event.AckedFrom] and [event.ObjectFromData] take; "" for one that is
// absent. In structured mode it reads the whole value. Get uses headers and value, which
// must not change meanwhile.
//
// An error means [ErrTombstone], or that the record is no CloudEvent of version 1.0.
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

// Decode reads the event that a record holds, in either mode, one of ours or of another
// writer that follows the binding. It fills in ID, Attributes and Data only. In binary
// mode the attributes come sorted by name, and Data is value itself. Errors are as in
// [Attributes].
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
	for _, h := range slices.Backward(headers) { // of several the last, see lookUp
		if name, ok := attributeOf(h); ok {
			m.Attributes = append(m.Attributes, event.Attribute{Name: name, Value: string(h.Value)})
		}
	}
	slices.SortStableFunc(m.Attributes, func(a, b event.Attribute) int { return cmp.Compare(a.Name, b.Name) })
	m.Attributes = slices.CompactFunc(m.Attributes, func(a, b event.Attribute) bool { return a.Name == b.Name })
	return m, nil
}

// check tells whether the headers are those of an event in binary mode.
func check(headers []recordbatch.Header) error {
	for _, h := range headers {
		if _, ok := attributeOf(h); ok && !utf8.Valid(h.Value) {
			return fmt.Errorf("decode event: header %q is not UTF-8", h.Key)
		}
	}
	if lookUp(headers, "id") == "" || lookUp(headers, "specversion") != "1.0" {
		return errors.New("decode event: not a CloudEvent of version 1.0")
	}
	return nil
}

// attributeOf is the name of the attribute that a header of binary mode holds. Names are
// matched in any case, as by the SDK. An attribute without a value is absent.
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

// lookUp gives the last where there are several, as Headers.lastHeader of the Java client
// and the SDK do.
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
