package nats

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
)

// The binding is the CloudEvents NATS protocol binding in the version after
// 1.0.2, the first with headers.
//
// In binary mode each attribute is a header, datacontenttype among them as
// ce-datacontenttype: the binding reserves content-type for telling structured
// mode. The CloudEvents SDK's reader takes ce-datacontenttype too. Header names are
// lower case because that reader looks for no other.
//
// In structured mode the attributes are in the body, and the SDK's reader takes
// any ce- header for binary mode. So what [Bus.Load] needs to know without the
// body, which it does not read, is repeated in headers of our own: kuberelay-uid
// and the like.
const (
	attributePrefix   = "ce-"
	statePrefix       = "kuberelay-"
	contentTypeHeader = "content-type"
	structuredType    = "application/cloudevents" // and what follows: "+json", ";charset=..."
)

// stateAttributes are those that [event.AckedFrom] asks for, and the id that
// resolves a refused publish.
var stateAttributes = [...]string{"id", "type", "uid", "resourceversion", "sequence", "digest"}

// encode makes the message for the bus, its subject and reply left to the caller. Its
// header is h's, which is empty.
func encode(mode ContentMode, m *event.Message, h *header) (*natsgo.Msg, error) {
	if mode == Structured {
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

// header builds a natsgo.Header whose values share one array. A publish copies what is in
// it before it returns, so that it can be used again: a map for each message would be much
// of what a publish costs.
type header struct {
	h      natsgo.Header
	values []string
}

const mostAttributes = 24

var headers = sync.Pool{New: func() any {
	return &header{make(natsgo.Header, mostAttributes), make([]string, 0, mostAttributes)}
}}

func (h *header) free() {
	clear(h.h)
	clear(h.values)
	h.values = h.values[:0]
	headers.Put(h)
}

func (h *header) set(name, value string) {
	h.values = append(h.values, value)
	h.h[name] = h.values[len(h.values)-1 : len(h.values) : len(h.values)]
}

// expects tells whether a publish is a compare-and-set. A marker is of no object and
// has nothing to compare, but for the claim of the cluster's name.
func expects(m *event.Message) bool { return !m.Marker || m.IsClaim() }

// expect makes the publish a compare-and-set.
func (h *header) expect(m *event.Message) {
	if expects(m) {
		h.set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(m.Expected, 10))
	}
}

// Decode reads an event as the bus holds it, in either content mode, as an event
// of ours or of another writer that follows the binding. It fills in ID,
// Attributes and Data only. In binary mode the attributes come sorted by name.
func Decode(headers natsgo.Header, data []byte) (*event.Message, error) {
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
	if m.ID == "" || m.Attribute("specversion") != "1.0" {
		return nil, errors.New("decode event: not a CloudEvent of version 1.0")
	}
	return m, nil
}

func isStructured(headers natsgo.Header) bool {
	t := get(headers, contentTypeHeader)
	return len(t) >= len(structuredType) && strings.EqualFold(t[:len(structuredType)], structuredType)
}

// stateOf gives the attributes that are known from the headers alone, in either
// mode.
func stateOf(headers natsgo.Header) func(attribute string) string {
	prefix := attributeHeader
	if isStructured(headers) {
		prefix = stateHeader
	}
	return func(attribute string) string {
		v, err := decodeValue(get(headers, prefix(attribute)))
		if err != nil {
			return ""
		}
		return v
	}
}

// get looks a header up by its usual name, and by no case in particular if it is
// not there.
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

func stateHeader(attribute string) string { return statePrefix + attribute }

// attributeHeader is the header of an attribute, without allocating for those
// that every event has.
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
