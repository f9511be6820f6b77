package binding

import (
	"fmt"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

const (
	attributePrefix   = "ce_"
	contentTypeHeader = "content-type"
	structuredType    = "application/cloudevents" // a prefix: "+json" or "; charset=..." can follow
)

// Encode returns the record of an event or a marker, without a timestamp. In binary mode, the record
// shares m.Data.
//
// Encode returns an error if m has no partitionkey or no data, or is malformed. A retry
// cannot succeed.
func Encode(m *event.Message, structured bool) (recordbatch.Record, error) {
	key := m.Attribute("partitionkey")
	switch {
	case key == "": // a compacted topic rejects records without a key
		return recordbatch.Record{}, fmt.Errorf("encode event %s: no partitionkey", m.ID)
	case m.Data == nil:
		return recordbatch.Record{}, fmt.Errorf("encode event %s: no data: the record would be a tombstone", m.ID)
	case structured:
		body, err := m.Structured()
		if err != nil {
			return recordbatch.Record{}, err
		}
		headers := []recordbatch.Header{{Key: contentTypeHeader, Value: []byte(event.ContentTypeStructured)}}
		return recordbatch.Record{Key: []byte(key), Value: body, Headers: headers}, nil
	}
	r := recordbatch.Record{Value: m.Data}
	r.Key, r.Headers = headers(key, m.Attributes)
	return r, nil
}

// dataHeader holds the data of a control record.
const dataHeader = "kuberelay_data"

// EncodeControl returns the record of a marker in an event topic. The record has no value, so
// a table of the topic contains no row for the marker. The headers are those of binary mode,
// plus one header with the data. A consistency point has no data header, because its attributes
// contain all of its information.
//
// EncodeControl returns the same errors as [Encode].
func EncodeControl(m *event.Message) (recordbatch.Record, error) {
	r, err := Encode(m, false)
	if err == nil && !m.IsResolved() {
		r.Headers = append(r.Headers, recordbatch.Header{Key: dataHeader, Value: r.Value})
	}
	r.Value = nil
	return r, err
}

// tombstonePrefix is the prefix of the headers that hold attributes in a tombstone. It differs
// from the prefix of the CloudEvents binding, because a tombstone is not an event.
const tombstonePrefix = "kuberelay_"

// tombstoneAttributes are the attributes that [event.AckedFrom] reads.
var tombstoneAttributes = [...]string{"type", "uid", "resourceversion", "sequence", "digest", "time"}

// Tombstone returns the tombstone that follows the removal m. The tombstone's headers identify
// the removal, because log compaction can delete the removal's own record before the tombstone.
func Tombstone(m *event.Message) *recordbatch.Record {
	t := &recordbatch.Record{Key: []byte(m.Attribute("partitionkey"))}
	for _, name := range tombstoneAttributes {
		if v := m.Attribute(name); v != "" {
			t.Headers = append(t.Headers, recordbatch.Header{Key: tombstonePrefix + name, Value: []byte(v)})
		}
	}
	return t
}

// headers returns the record key and the headers of binary mode. All names share one byte array.
// The key and all values share another.
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
