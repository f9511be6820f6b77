package binding

import (
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// odd returns an event of an object whose name RBAC allows. The name contains every kind of
// character that must be encoded.
func odd(t testing.TB) *event.Message {
	return publishtest.Object{Name: `système:"admin" 100%`, UID: "u-1", Version: 7, Data: "x"}.Message(t, 41)
}

func TestEncodeBinary(t *testing.T) {
	m := odd(t)
	msg, err := Encode(m, false, NewHeader())
	if err != nil {
		t.Fatal(err)
	}
	want := natsgo.Header{
		"ce-id":                               {"u-1.7"},
		"ce-source":                           {"/kubernetes/test.cluster"},
		"ce-specversion":                      {"1.0"},
		"ce-type":                             {"io.kuberelay.object.updated"},
		"ce-subject":                          {"/apis/apps/v1/namespaces/default/deployments/syst%25C3%25A8me:%2522admin%2522%2520100%2525"},
		"ce-time":                             {"2026-03-01T12:00:00Z"},
		"ce-datacontenttype":                  {"application/json"},
		"ce-partitionkey":                     {"test.cluster/apps/deployments/default/syst%C3%A8me:%22admin%22%20100%2525"},
		"ce-sequence":                         {"0000.00000000000000000007"},
		"ce-apiversion":                       {"apps/v1"},
		"ce-kind":                             {"Deployment"},
		"ce-namespace":                        {"default"},
		"ce-name":                             {"syst%C3%A8me:%22admin%22%20100%2525"}, // the event has already escaped '%'
		"ce-uid":                              {"u-1"},
		"ce-resourceversion":                  {"7"},
		"ce-cause":                            {"watch"},
		"Nats-Expected-Last-Subject-Sequence": {"41"},
	}
	if diff := cmp.Diff(want, msg.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if string(msg.Data) != string(m.Data) {
		t.Errorf("data is %s", msg.Data)
	}
}

func TestEncodeStructured(t *testing.T) {
	m := odd(t)
	msg, err := Encode(m, true, NewHeader())
	if err != nil {
		t.Fatal(err)
	}
	want := natsgo.Header{
		"content-type":                        {"application/cloudevents+json"},
		"kuberelay-id":                        {"u-1.7"},
		"kuberelay-time":                      {"2026-03-01T12:00:00Z"},
		"kuberelay-type":                      {"io.kuberelay.object.updated"},
		"kuberelay-uid":                       {"u-1"},
		"kuberelay-resourceversion":           {"7"},
		"kuberelay-sequence":                  {"0000.00000000000000000007"},
		"Nats-Expected-Last-Subject-Sequence": {"41"},
	}
	if diff := cmp.Diff(want, msg.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if body, _ := m.Structured(); string(msg.Data) != string(body) {
		t.Errorf("body is %s", msg.Data)
	}
}

func TestMarkerExpectsNothing(t *testing.T) {
	m, err := event.Builder{Cluster: "c"}.Marker(event.SnapshotStarted, publishtest.Resource, "s", 0, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for _, structured := range []bool{false, true} {
		msg, err := Encode(m, structured, NewHeader())
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := msg.Header["Nats-Expected-Last-Subject-Sequence"]; ok {
			t.Errorf("structured %t: a marker expects %v", structured, v)
		}
	}
}

func TestDecodeUndoesEncode(t *testing.T) {
	for _, structured := range []bool{false, true} {
		m := odd(t)
		msg, err := Encode(m, structured, NewHeader())
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(msg.Header, msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != m.ID || string(got.Data) != string(m.Data) {
			t.Errorf("structured %t: got id %q, data %s", structured, got.ID, got.Data)
		}
		if diff := cmp.Diff(publishtest.Attributes(m), publishtest.Attributes(got)); diff != "" {
			t.Errorf("structured %t: attributes (-want +got):\n%s", structured, diff)
		}
		acked, err := event.AckedFrom(stateOf(msg.Header))
		if err != nil || acked != m.Acked {
			t.Errorf("structured %t: from the headers alone: %+v, %v; want %+v", structured, acked, err, m.Acked)
		}
	}
}

// TestDecodeOthers verifies that Decode accepts everything that the binding allows other writers to
// send.
func TestDecodeOthers(t *testing.T) {
	required := natsgo.Header{"ce-id": {"1"}, "ce-specversion": {"1.0"}, "ce-type": {"t"}, "ce-source": {"/s"}}
	with := func(more natsgo.Header) natsgo.Header {
		h := natsgo.Header{}
		for _, m := range []natsgo.Header{required, more} {
			for k, v := range m {
				h[k] = v
			}
		}
		return h
	}
	for _, test := range []struct {
		name    string
		headers natsgo.Header
		want    string // value of the subject attribute
		fails   bool
	}{
		{"plain", with(natsgo.Header{"ce-subject": {"a-b"}}), "a-b", false},
		{"names in any case", with(natsgo.Header{"Ce-SUBJECT": {"a"}}), "a", false},
		{"the specification's example", with(natsgo.Header{"ce-subject": {"Euro%20%E2%82%AC%20%F0%9F%98%80"}}), "Euro € 😀", false},
		{"lower-case hex", with(natsgo.Header{"ce-subject": {"%e2%82%ac"}}), "€", false},
		{"needless encoding", with(natsgo.Header{"ce-subject": {"%41b"}}), "Ab", false},
		{"one round of decoding", with(natsgo.Header{"ce-subject": {"%2541"}}), "%41", false},
		{"quoted", with(natsgo.Header{"ce-subject": {`"a \"b\" \\ c%20d"`}}), `a "b" \ c d`, false},
		{"overlong UTF-8", with(natsgo.Header{"ce-subject": {"%C0%A0"}}), "", true},
		{"not UTF-8", with(natsgo.Header{"ce-subject": {"\xff"}}), "", true},
		{"broken escape", with(natsgo.Header{"ce-subject": {"100%"}}), "", true},
		{"bad escape", with(natsgo.Header{"ce-subject": {"%zz1"}}), "", true},
		{"no event", natsgo.Header{"foo": {"bar"}}, "", true},
		{"no headers", nil, "", true},
		{"version of the future", natsgo.Header{"ce-id": {"1"}, "ce-specversion": {"2.0"}}, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := Decode(test.headers, []byte("{}"))
			if test.fails {
				if err == nil {
					t.Errorf("got %v, want an error", m)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Attribute("subject"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestDecodeContentType(t *testing.T) {
	const body = `{"specversion":"1.0","id":"1","type":"t","source":"/s","data":{}}`
	for _, contentType := range []string{"application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8", "application/cloudevents"} {
		for _, name := range []string{"content-type", "Content-Type"} {
			if m, err := Decode(natsgo.Header{name: {contentType}}, []byte(body)); err != nil || m.ID != "1" {
				t.Errorf("%s: %s: got %v, %v", name, contentType, m, err)
			}
		}
	}
}

// TestAttributeHeader verifies that the constant header names equal the computed ones.
func TestAttributeHeader(t *testing.T) {
	names := strings.Fields("id source specversion type subject time datacontenttype partitionkey sequence apiversion " +
		"kind namespace name uid resourceversion previousversion cause truncated")
	for _, name := range names {
		if got, want := attributeHeader(name), "ce-"+name; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func FuzzEncodeValue(f *testing.F) {
	for _, s := range []string{"", "plain", "a b", "100%", "\"", "€😀", "\r\nce-id: evil", "\x7f\x00\xff", "\"quoted\"", "%41", "\u00a0", "~!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		encoded := encodeValue(s)
		for _, c := range []byte(encoded) {
			if c <= ' ' || c > '~' || c == '"' {
				t.Fatalf("%q is encoded as %q, which holds %q", s, encoded, c)
			}
		}
		decoded, err := decodeValue(encoded)
		if err != nil {
			t.Fatalf("%q, encoded %q: %v", s, encoded, err)
		}
		if want := strings.ToValidUTF8(s, string(utf8.RuneError)); decoded != want {
			t.Fatalf("%q came back as %q", s, decoded)
		}
		if plain := !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '%' }); plain && encoded != s {
			t.Fatalf("%q is encoded needlessly as %q", s, encoded)
		}
	})
}

// FuzzDecodeValue verifies that decoding never panics and always returns valid UTF-8.
func FuzzDecodeValue(f *testing.F) {
	for _, s := range []string{"", `"`, `""`, `"\`, "%", "%4", "%41", "%C0%A0", `"\"%20"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if decoded, err := decodeValue(s); err == nil && !utf8.ValidString(decoded) {
			t.Fatalf("%q decodes to %q", s, decoded)
		}
	})
}

// TestAttributeTwice verifies that a message with a duplicate attribute is not an event, because
// readers differ in which of the two they use.
func TestAttributeTwice(t *testing.T) {
	for name, c := range map[string]struct {
		add  map[string][]string
		want bool // whether the message is an event
	}{
		"none":                              {nil, true},
		"another header":                    {map[string][]string{"X-A": {"a", "b"}, "x-a": {"c"}}, true},
		"an attribute in another case":      {map[string][]string{"CE-Subject": {"a"}}, true},
		"two values":                        {map[string][]string{"ce-type": {"a", "b"}}, false},
		"two spellings":                     {map[string][]string{"Ce-Type": {"b"}}, false},
		"two spellings that are not ours":   {map[string][]string{"Ce-X": {"a"}, "cE-x": {"b"}}, false},
		"two content types":                 {map[string][]string{"Content-Type": {"application/json"}, "CONTENT-TYPE": {"application/cloudevents+json"}}, false},
		"two spellings of a header of ours": {map[string][]string{"Kuberelay-Id": {"a"}, "kuberelay-id": {"b"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := natsgo.Header{"ce-id": {"i"}, "ce-specversion": {"1.0"}, "ce-type": {"t"}, "ce-source": {"/s"}}
			maps.Copy(h, c.add)
			for range 20 { // map iteration order varies
				m, err := Decode(h, []byte("{}"))
				if (err == nil) != c.want {
					t.Fatalf("Decode: %+v, %v", m, err)
				}
				if got := Attributes(h, nil)("id"); (got == "i") != c.want {
					t.Fatalf("the id is %q", got)
				}
			}
		})
	}
}
