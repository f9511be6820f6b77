package binding

import (
	"testing"

	"github.com/IBM/sarama"
	kafkasarama "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestSDKWrites verifies that the CloudEvents SDK's Kafka binding writes the same record as
// Encode for the same event, and that Decode reads the SDK's record as that event.
func TestSDKWrites(t *testing.T) {
	for _, test := range messages(t) {
		for _, structured := range []bool{false, true} {
			t.Run(test.name+"/"+mode(structured), func(t *testing.T) {
				want := sdkRecord(t, sdkEvent(t, test.message), structured)
				got := mustEncode(t, test.message, structured)
				if diff := cmp.Diff(string(want.Key), string(got.Key)); diff != "" {
					t.Errorf("key (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(headerMap(t, want.Headers), headerMap(t, got.Headers)); diff != "" {
					t.Errorf("headers (-want +got):\n%s", diff)
				}
				wantValue, gotValue := string(want.Value), string(got.Value)
				if structured { // the SDK writes the JSON members in another order
					wantValue, gotValue = publishtest.CanonicalJSON(t, want.Value), publishtest.CanonicalJSON(t, got.Value)
				}
				if diff := cmp.Diff(wantValue, gotValue); diff != "" {
					t.Errorf("value (-want +got):\n%s", diff)
				}

				m, err := Decode(want.Headers, want.Value)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(publishtest.Attributes(test.message), publishtest.Attributes(m)); diff != "" {
					t.Errorf("attributes, read by us (-want +got):\n%s", diff)
				}
				if publishtest.CanonicalJSON(t, m.Data) != publishtest.CanonicalJSON(t, test.message.Data) {
					t.Errorf("data, read by us, is %s", m.Data)
				}
			})
		}
	}
}

// TestSDKReads verifies that the SDK reads Encode's records as the same events.
func TestSDKReads(t *testing.T) {
	for _, test := range messages(t) {
		for _, structured := range []bool{false, true} {
			t.Run(test.name+"/"+mode(structured), func(t *testing.T) {
				r := mustEncode(t, test.message, structured)
				received := &sarama.ConsumerMessage{Topic: "topic", Key: r.Key, Value: r.Value}
				for _, h := range r.Headers {
					received.Headers = append(received.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
				}
				message := kafkasarama.NewMessageFromConsumerMessage(received)
				if got, want := message.ReadEncoding() == binding.EncodingStructured, structured; got != want {
					t.Errorf("taken for structured: %v", got)
				}
				e, err := binding.ToEvent(t.Context(), message)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Validate(); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(publishtest.Attributes(test.message), publishtest.SDKAttributes(t, e)); diff != "" {
					t.Errorf("attributes (-want +got):\n%s", diff)
				}
				if string(e.Data()) != string(test.message.Data) {
					t.Errorf("data is %s", e.Data())
				}
			})
		}
	}
}

// sdkEvent builds the SDK's event directly from the attributes, without this package's encoding.
func sdkEvent(t *testing.T, m *event.Message) *cloudevents.Event {
	t.Helper()
	e := cloudevents.New()
	for _, a := range m.Attributes {
		switch a.Name {
		case "id":
			e.SetID(a.Value)
		case "source":
			e.SetSource(a.Value)
		case "specversion":
			e.SetSpecVersion(a.Value)
		case "type":
			e.SetType(a.Value)
		case "subject":
			e.SetSubject(a.Value)
		case "time":
			at, err := types.ParseTime(a.Value)
			if err != nil {
				t.Fatal(err)
			}
			e.SetTime(at)
		case "datacontenttype":
			e.SetDataContentType(a.Value)
		case "finalstateunknown", "truncated":
			e.SetExtension(a.Name, a.Value == "true")
		default:
			e.SetExtension(a.Name, a.Value)
		}
	}
	e.DataEncoded = m.Data // SetData would encode a byte slice as base64
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	return &e
}

// sdkRecord returns the record that the SDK writes for an event.
func sdkRecord(t *testing.T, e *cloudevents.Event, structured bool) recordbatch.Record {
	t.Helper()
	ctx := binding.WithForceBinary(t.Context())
	if structured {
		ctx = binding.WithForceStructured(t.Context())
	}
	var written sarama.ProducerMessage
	if err := kafkasarama.WriteProducerMessage(ctx, binding.ToMessage(e), &written); err != nil {
		t.Fatal(err)
	}
	var r recordbatch.Record
	var err error
	if r.Key, err = written.Key.Encode(); err != nil {
		t.Fatal(err)
	}
	if r.Value, err = written.Value.Encode(); err != nil {
		t.Fatal(err)
	}
	for _, h := range written.Headers {
		r.Headers = append(r.Headers, recordbatch.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}

func headerMap(t *testing.T, headers []recordbatch.Header) map[string]string {
	t.Helper()
	result := map[string]string{}
	for _, h := range headers {
		if _, ok := result[h.Key]; ok {
			t.Errorf("header %s is there twice", h.Key)
		}
		result[h.Key] = string(h.Value)
	}
	return result
}
