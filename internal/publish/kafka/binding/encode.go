package binding

import (
	"fmt"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

const (
	attributePrefix   = "ce_"
	contentTypeHeader = "content-type"
	structuredType    = "application/cloudevents" // and what follows: "+json", "; charset=..."
)

// Encode makes the record of an event or a marker. Its timestamp is the attribute time, so
// in milliseconds. In binary mode the record shares m.Data.
//
// An error means that m has no partitionkey or no data, or is malformed; trying again
// cannot help.
func Encode(m *event.Message, structured bool) (recordbatch.Record, error) {
	fail := func(problem string) (recordbatch.Record, error) {
		return recordbatch.Record{}, fmt.Errorf("encode event %s: %s", m.ID, problem)
	}
	key := m.Attribute("partitionkey")
	if key == "" {
		return fail("it has no partitionkey") // a compacted topic takes no record without key
	}
	if m.Data == nil {
		return fail("it has no data, which would be a tombstone")
	}
	r := recordbatch.Record{}
	if t := m.Attribute("time"); t != "" {
		var err error
		if r.Timestamp, err = time.Parse(time.RFC3339Nano, t); err != nil {
			return fail("time is not in the format of RFC 3339")
		}
	}
	if structured {
		body, err := m.Structured()
		if err != nil {
			return recordbatch.Record{}, err
		}
		r.Key, r.Value = []byte(key), body
		r.Headers = []recordbatch.Header{{Key: contentTypeHeader, Value: []byte(event.ContentTypeStructured)}}
		return r, nil
	}
	r.Key, r.Headers = headers(key, m.Attributes)
	r.Value = m.Data
	return r, nil
}

// headers makes the headers of binary mode, and the key. All names share one array of
// bytes, and so do all values.
func headers(key string, attributes []event.Attribute) ([]byte, []recordbatch.Header) {
	nameSize, valueSize := 0, len(key)
	for _, a := range attributes {
		nameSize += max(len(attributePrefix)+len(a.Name), len(contentTypeHeader))
		valueSize += len(a.Value)
	}
	var names strings.Builder
	names.Grow(nameSize)
	values := make([]byte, 0, valueSize)
	headers := make([]recordbatch.Header, len(attributes))
	value := func(s string) []byte {
		from := len(values)
		values = append(values, s...)
		return values[from:len(values):len(values)]
	}
	for i, a := range attributes {
		from := names.Len()
		if a.Name == "datacontenttype" {
			names.WriteString(contentTypeHeader)
		} else {
			names.WriteString(attributePrefix)
			names.WriteString(a.Name)
		}
		headers[i] = recordbatch.Header{Key: names.String()[from:], Value: value(a.Value)}
	}
	return value(key), headers
}
