package binding

import (
	"strconv"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
)

const (
	attributePrefix   = "ce-"
	statePrefix       = "kuberelay-"
	contentTypeHeader = "content-type"
	structuredType    = "application/cloudevents" // a prefix: "+json" or ";charset=..." might follow

	// A key-value bucket that mirrors the stream has no key for a message with this header
	// (ADR-8).
	keyValueHeader = "KV-Operation"
	keyValueDelete = "DEL"
)

// stateAttributes are the attributes that [event.AckedFrom] reads, and the id, which Kuberelay needs
// after a rejected publish.
var stateAttributes = [...]string{"id", "type", "uid", "resourceversion", "sequence", "digest", "time"}

// Encode returns the message of an event, without subject and reply. It uses h, which must be empty,
// as the header of the message.
func Encode(m *event.Message, structured bool, h *Header) (*natsgo.Msg, error) {
	if m.Acked.Deleted || m.Marker {
		h.set(keyValueHeader, keyValueDelete)
	}
	if structured {
		body, err := m.Structured()
		if err != nil {
			return nil, err
		}
		h.set(contentTypeHeader, event.ContentTypeStructured)
		for _, name := range stateAttributes {
			if v := m.Attribute(name); v != "" {
				h.set(stateHeader(name), encodeValue(v))
			}
		}
		h.expect(m)
		return &natsgo.Msg{Header: h.h, Data: body}, nil
	}
	for _, a := range m.Attributes {
		h.set(attributeHeader(a.Name), encodeValue(a.Value))
	}
	h.expect(m)
	return &natsgo.Msg{Header: h.h, Data: m.Data}, nil
}

// IsRow reports whether a message is a row, that is, becomes a key of a bucket that mirrors the stream.
func IsRow(headers natsgo.Header) bool { return get(headers, keyValueHeader) != keyValueDelete }

// Header builds a natsgo.Header whose values share one array. Headers are reused, because a map per
// message would be a large part of the cost of a publish. Reuse is safe, because a publish copies
// the header before it returns.
type Header struct {
	h      natsgo.Header
	values []string
}

const headerCapacity = 24

var headers = sync.Pool{New: func() any {
	return &Header{make(natsgo.Header, headerCapacity), make([]string, 0, headerCapacity)}
}}

// Free empties h and returns it to the pool. The caller must not use a message with this header
// afterwards.
func (h *Header) Free() {
	clear(h.h)
	clear(h.values)
	h.values = h.values[:0]
	headers.Put(h)
}

// NewHeader returns an empty header from a pool.
func NewHeader() *Header { return headers.Get().(*Header) }

func (h *Header) set(name, value string) {
	h.values = append(h.values, value)
	h.h[name] = h.values[len(h.values)-1 : len(h.values) : len(h.values)]
}

// IsConditional reports whether the publish of m is a compare-and-set. A marker belongs to no
// object, so it has no expected position, except for the claim of a cluster name.
func IsConditional(m *event.Message) bool { return !m.Marker || m.IsClaim() }

// expect sets the header with the expected position if the publish of m is conditional.
func (h *Header) expect(m *event.Message) {
	if IsConditional(m) {
		h.set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(m.Expected, 10))
	}
}

func stateHeader(attribute string) string { return statePrefix + attribute }

// attributeHeader returns the header name of an attribute. It does not allocate for common
// attributes.
func attributeHeader(attribute string) string {
	switch attribute {
	case "id":
		return "ce-id"
	case "source":
		return "ce-source"
	case "specversion":
		return "ce-specversion"
	case "type":
		return "ce-type"
	case "subject":
		return "ce-subject"
	case "time":
		return "ce-time"
	case "datacontenttype":
		return "ce-datacontenttype"
	case "partitionkey":
		return "ce-partitionkey"
	case "sequence":
		return "ce-sequence"
	case "apiversion":
		return "ce-apiversion"
	case "kind":
		return "ce-kind"
	case "namespace":
		return "ce-namespace"
	case "name":
		return "ce-name"
	case "uid":
		return "ce-uid"
	case "resourceversion":
		return "ce-resourceversion"
	case "previousversion":
		return "ce-previousversion"
	case "changed":
		return "ce-changed"
	case "digest":
		return "ce-digest"
	case "dataschema":
		return "ce-dataschema"
	case "cause":
		return "ce-cause"
	}
	return attributePrefix + attribute
}
