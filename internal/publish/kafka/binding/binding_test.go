package binding

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/golden"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestGolden compares each record with testdata/<name>.<mode>. A golden file contains the key, one
// line per header, and then the value.
func TestGolden(t *testing.T) {
	for _, test := range messages(t) {
		for _, structured := range []bool{false, true} {
			r := mustEncode(t, test.message, structured)
			var got bytes.Buffer
			fmt.Fprintf(&got, "key: %s\n", r.Key)
			for _, h := range r.Headers {
				fmt.Fprintf(&got, "header %s: %s\n", h.Key, h.Value)
			}
			fmt.Fprintf(&got, "\n%s\n", r.Value)
			golden.Check(t, test.name+"."+mode(structured), got.String())
		}
	}
}

// TestRoundTrip verifies that, in either mode, a record contains everything that the forwarder
// needs at its next start.
func TestRoundTrip(t *testing.T) {
	for _, test := range messages(t) {
		for _, structured := range []bool{false, true} {
			t.Run(test.name+"/"+mode(structured), func(t *testing.T) {
				m := test.message
				r := mustEncode(t, m, structured)
				got, err := Decode(r.Headers, r.Value)
				if err != nil {
					t.Fatal(err)
				}
				if got.ID != m.ID || string(got.Data) != string(m.Data) {
					t.Errorf("got id %q, data %s", got.ID, got.Data)
				}
				if diff := cmp.Diff(publishtest.Attributes(m), publishtest.Attributes(got)); diff != "" || len(got.Attributes) != len(m.Attributes) {
					t.Errorf("%d attributes of %d (-want +got):\n%s", len(got.Attributes), len(m.Attributes), diff)
				}
				get, as, err := Attributes(r.Headers, r.Value)
				if err != nil || as != structured {
					t.Fatalf("structured is %v: %v", as, err)
				}
				for _, a := range append(m.Attributes, event.Attribute{Name: "absent"}) {
					if v := get(a.Name); v != a.Value {
						t.Errorf("%s is %q, want %q", a.Name, v, a.Value)
					}
				}
				acked, err := event.AckedFrom(get)
				if acked != m.Acked || (err != nil) != m.Marker {
					t.Errorf("acked %+v, %v; want %+v", acked, err, m.Acked)
				}
				if m.Marker {
					return
				}
				o, err := event.ObjectFromData(get, got.Data)
				if err != nil || string(o.UID) != "6f1b" || o.Body.None() != (test.name == "truncated" || test.name == "deleted-unknown") {
					t.Errorf("object %+v: %v", o, err)
				}
			})
		}
	}
}

// TestControl verifies that a marker's record in an event topic has no value, and that
// DecodeControl restores the whole marker. A consistency point loses only its data, which
// repeats its attributes.
func TestControl(t *testing.T) {
	for _, typed := range publishtest.EveryType(t) {
		m := typed.Message
		if !m.Marker {
			continue
		}
		t.Run(typed.Type, func(t *testing.T) {
			r, err := EncodeControl(m)
			if err != nil {
				t.Fatal(err)
			}
			if r.Value != nil || string(r.Key) != m.Attribute("partitionkey") || !IsControl(r.Headers) {
				t.Errorf("got the record %+v", r)
			}
			want := string(m.Data)
			if m.IsResolved() {
				want = ""
			}
			got, err := DecodeControl(r.Headers, r.Value)
			if err != nil {
				t.Fatal(err)
			}
			if got.ID != m.ID || string(got.Data) != want {
				t.Errorf("got id %q, data %s", got.ID, got.Data)
			}
			if diff := cmp.Diff(publishtest.Attributes(m), publishtest.Attributes(got)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			for _, structured := range []bool{false, true} { // earlier releases write markers with a value
				valued := mustEncode(t, m, structured)
				if got, err := DecodeControl(valued.Headers, valued.Value); err != nil || got.ID != m.ID || string(got.Data) != string(m.Data) {
					t.Errorf("with a value: got %+v, %v", got, err)
				}
			}
		})
	}
	for name, headers := range map[string][]recordbatch.Header{
		"no headers": nil, "a tombstone of a delete": headersOf("kuberelay_type=io.kuberelay.object.deleted"), "data alone": headersOf("kuberelay_data={}"),
	} {
		if m, err := DecodeControl(headers, nil); IsControl(headers) || !errors.Is(err, ErrTombstone) {
			t.Errorf("%s: got %+v, %v, want %v", name, m, err, ErrTombstone)
		}
	}
	if m, err := DecodeControl(headersOf("ce_type=io.kuberelay.snapshot.started"), nil); err == nil {
		t.Errorf("no id: got %+v", m)
	}
}

// TestEncodeShares verifies that appending to a header's value does not change the next header,
// although the headers share memory.
func TestEncodeShares(t *testing.T) {
	m := messages(t)[0].message
	r := mustEncode(t, m, false)
	for i := range r.Headers {
		_ = append(r.Headers[i].Value, "garbage"...)
	}
	_ = append(r.Key, "garbage"...)
	got, err := Decode(r.Headers, r.Value)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(publishtest.Attributes(m), publishtest.Attributes(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeRefuses(t *testing.T) {
	attributes := []event.Attribute{{Name: "id", Value: "1"}, {Name: "partitionkey", Value: "k"}}
	for _, test := range []struct {
		name string
		m    event.Message
		ok   bool
	}{
		{"enough", event.Message{Attributes: attributes, Data: []byte("{}")}, true},
		{"no key", event.Message{Attributes: attributes[:1], Data: []byte("{}")}, false},
		{"no data", event.Message{Attributes: attributes}, false},
	} {
		for _, structured := range []bool{false, true} {
			if r, err := Encode(&test.m, structured); (err == nil) != test.ok {
				t.Errorf("%s, %s: got %+v, %v", test.name, mode(structured), r, err)
			}
		}
	}
	if r, err := Encode(&event.Message{Attributes: attributes, Data: []byte("{")}, true); err == nil {
		t.Errorf("no JSON: got %+v", r)
	}
}

// headersOf converts lines of the form "name=value" to headers. A line without '=' becomes a
// header with a null value.
func headersOf(lines ...string) (headers []recordbatch.Header) {
	for _, l := range lines {
		h := recordbatch.Header{}
		if name, value, ok := strings.Cut(l, "="); ok {
			h = recordbatch.Header{Key: name, Value: []byte(value)}
		} else {
			h.Key = l
		}
		headers = append(headers, h)
	}
	return headers
}

// TestDecodeOthers verifies that Decode and Attributes read the records of other writers.
func TestDecodeOthers(t *testing.T) {
	const body = `{"specversion":"1.0","id":"1","type":"t","source":"/s","subject":"a","data":{}}`
	required := headersOf("ce_id=1", "ce_specversion=1.0", "ce_type=t", "ce_source=/s")
	with := func(lines ...string) []recordbatch.Header { return append(required[:4:4], headersOf(lines...)...) }
	for _, test := range []struct {
		name    string
		headers []recordbatch.Header
		value   string
		want    string // value of the subject attribute
		fails   bool
	}{
		{"plain", with("ce_subject=a"), "{}", "a", false},
		{"unicode", with("ce_subject=Euro € 😀 100%25"), "{}", "Euro € 😀 100%25", false},
		{"names in any case", with("Ce_SUBJECT=a"), "{}", "a", false},
		{"the last of several", with("ce_subject=a", "CE_Subject=b", "ce_x=y"), "{}", "b", false},
		{"empty is absent", with("ce_subject="), "{}", "", false},
		{"null is absent", with("ce_subject"), "{}", "", false},
		{"a null after it", with("ce_subject=a", "ce_subject"), "{}", "a", false},
		{"other headers", with("ce_subject=a", "ce_=x", "ce-subject=b", "traceparent=\xff", "subject=c"), "{}", "a", false},
		{"empty value", with("ce_subject=a"), "", "a", false},
		{"not UTF-8", with("ce_subject=\xff"), "{}", "", true},
		{"no event", headersOf("foo=bar"), "{}", "", true},
		{"no headers", nil, body, "", true},
		{"version of the future", headersOf("ce_id=1", "ce_specversion=2.0"), "{}", "", true},
		{"no id", headersOf("ce_specversion=1.0"), "{}", "", true},
		{"structured", headersOf("content-type=application/cloudevents+json"), body, "a", false},
		{"structured, with charset", headersOf("Content-Type=Application/CloudEvents+JSON; charset=UTF-8"), body, "a", false},
		{"structured, headers as well", with("ce_subject=b", "content-type=application/cloudevents+json"), body, "a", false},
		{"structured, another format", headersOf("content-type=application/cloudevents+avro"), "\x02a", "", true},
		{"structured, a batch", headersOf("content-type=application/cloudevents-batch+json"), "[" + body + "]", "", true},
		{"structured, empty", headersOf("content-type=application/cloudevents+json"), "", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := Decode(test.headers, []byte(test.value))
			get, _, err2 := Attributes(test.headers, []byte(test.value))
			if (err != nil) != test.fails || (err2 != nil) != test.fails {
				t.Fatalf("got %v, %v and %v", m, err, err2)
			}
			if test.fails {
				return
			}
			if got, got2 := m.Attribute("subject"), get("subject"); got != test.want || got2 != test.want {
				t.Errorf("got %q and %q, want %q", got, got2, test.want)
			}
			seen := map[string]bool{}
			for _, a := range m.Attributes {
				if seen[a.Name] || a.Name == "" {
					t.Errorf("attribute %q is there twice, or has no name", a.Name)
				}
				seen[a.Name] = true
			}
		})
	}
}

func TestDecodeContentType(t *testing.T) {
	headers := headersOf("ce_id=1", "ce_specversion=1.0", "content-type=application/json")
	m, err := Decode(headers, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"id": "1", "specversion": "1.0", "datacontenttype": "application/json"}; !cmp.Equal(want, publishtest.Attributes(m)) {
		t.Errorf("got %v", publishtest.Attributes(m))
	}
}

func TestTombstone(t *testing.T) {
	for _, headers := range [][]recordbatch.Header{
		nil, headersOf("ce_id=1", "ce_specversion=1.0"), headersOf("content-type=application/cloudevents+json"),
	} {
		_, err := Decode(headers, nil)
		_, _, err2 := Attributes(headers, nil)
		if !errors.Is(err, ErrTombstone) || !errors.Is(err2, ErrTombstone) {
			t.Errorf("%v: got %v and %v", headers, err, err2)
		}
	}
}

// FuzzDecode verifies that decoding never panics, and that Decode and Attributes agree.
func FuzzDecode(f *testing.F) {
	f.Add("ce_id", []byte("1"), "content-type", []byte("application/json"), []byte("{}"))
	f.Add("CONTENT-TYPE", []byte("application/cloudevents"), "ce_", []byte(""), []byte(`{"specversion":"1.0","id":"1"}`))
	f.Add("ce_\u212a", []byte("\xff"), "ce_specversion", []byte("2"), []byte{})
	f.Fuzz(func(t *testing.T, name1 string, value1 []byte, name2 string, value2, data []byte) {
		headers := append(headersOf("ce_id=1", "ce_specversion=1.0"),
			recordbatch.Header{Key: name1, Value: value1}, recordbatch.Header{Key: name2, Value: value2})
		m, err := Decode(headers, data)
		get, _, err2 := Attributes(headers, data)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("got %v and %v", err, err2)
		}
		if err != nil {
			return
		}
		if m.ID == "" || m.ID != get("id") {
			t.Errorf("id %q and %q", m.ID, get("id"))
		}
		for _, a := range m.Attributes {
			if v := get(a.Name); v != a.Value {
				t.Errorf("%s is %q and %q", a.Name, a.Value, v)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	m := messages(b)[1].message
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encode(m, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAckedFrom(b *testing.B) {
	r := mustEncode(b, messages(b)[1].message, false)
	b.ReportAllocs()
	for b.Loop() {
		get, _, err := Attributes(r.Headers, r.Value)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := event.AckedFrom(get); err != nil {
			b.Fatal(err)
		}
	}
}
