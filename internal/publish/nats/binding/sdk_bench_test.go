package binding

import (
	"context"
	"io"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
)

// BenchmarkBinary compares the encoding of an event in binary mode with that of the CloudEvents SDK,
// which needs an event.Event and a BinaryWriter to write the same headers.
func BenchmarkBinary(b *testing.B) {
	m := odd(b)
	b.Run("kuberelay", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h := NewHeader()
			if _, err := Encode(m, false, h); err != nil {
				b.Fatal(err)
			}
			h.Free()
		}
	})
	b.Run("sdk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e := sdkEvent(b, m)
			w := sdkWriter{h: natsgo.Header{}}
			if _, err := binding.Write(context.Background(), (*binding.EventMessage)(&e), nil, &w); err != nil {
				b.Fatal(err)
			}
			if len(w.h) != len(m.Attributes) {
				b.Fatalf("got %d headers of %d attributes: %v", len(w.h), len(m.Attributes), w.h)
			}
		}
	})
}

func sdkEvent(b *testing.B, m *event.Message) cloudevents.Event {
	e := cloudevents.New()
	for _, a := range m.Attributes {
		switch a.Name {
		case "specversion":
		case "id":
			e.SetID(a.Value)
		case "source":
			e.SetSource(a.Value)
		case "type":
			e.SetType(a.Value)
		case "subject":
			e.SetSubject(a.Value)
		case "time":
			at, err := types.ParseTime(a.Value)
			if err != nil {
				b.Fatal(err)
			}
			e.SetTime(at)
		case "datacontenttype":
			e.SetDataContentType(a.Value)
		default:
			e.SetExtension(a.Name, a.Value)
		}
	}
	e.DataEncoded = m.Data
	return e
}

type sdkWriter struct{ h natsgo.Header }

func (w *sdkWriter) Start(context.Context) error { return nil }
func (w *sdkWriter) End(context.Context) error   { return nil }
func (w *sdkWriter) SetData(io.Reader) error     { return nil }

func (w *sdkWriter) SetAttribute(attribute spec.Attribute, value any) error {
	if value == nil {
		return nil
	}
	return w.SetExtension(attribute.Name(), value)
}

func (w *sdkWriter) SetExtension(name string, value any) error {
	text, err := types.Format(value)
	if err != nil {
		return err
	}
	w.h[attributeHeader(name)] = []string{encodeValue(text)}
	return nil
}
