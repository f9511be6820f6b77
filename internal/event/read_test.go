package event

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// getter returns a function that returns the attributes of a message. The attributes in replace
// take precedence.
func getter(m *Message, replace ...Attribute) func(string) string {
	return func(name string) string {
		for _, a := range replace {
			if a.Name == name {
				return a.Value
			}
		}
		return m.Attribute(name)
	}
}

func TestAckedFrom(t *testing.T) {
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			m, err := builder.Message(tt.change)
			if err != nil {
				t.Fatal(err)
			}
			got, err := AckedFrom(m.Attribute)
			if err != nil || got != m.Acked {
				t.Errorf("AckedFrom = %+v, %v; want %+v", got, err, m.Acked)
			}
		})
	}
}

func TestAckedFromUndoesEscapes(t *testing.T) {
	m, err := builder.Message(change(widgets, "a", "b", func(c *Change) {
		c.Object.UID, c.Object.ResourceVersion = "u%\n", "v%0A\x00"
	}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := AckedFrom(m.Attribute)
	if err != nil || got != m.Acked {
		t.Errorf("AckedFrom = %+v, %v; want %+v", got, err, m.Acked)
	}
}

func TestAckedFromRefuses(t *testing.T) {
	m, err := builder.Message(change(deployments, "default", "web", nil))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]Attribute{
		"a marker":             {"type", string(SnapshotCompleted)},
		"no type":              {"type", ""},
		"no uid":               {"uid", ""},
		"no sequence":          {"sequence", ""},
		"no epoch":             {"sequence", ".1"},
		"a short epoch":        {"sequence", "001.1"},
		"an epoch with a sign": {"sequence", "+001.1"},
		"an epoch too great":   {"sequence", "65536.1"},
		"after the last epoch": {"sequence", "10000.00000000000000012345"},
		"another version":      {"sequence", "0000.00000000000000012346"},
		"a short version":      {"sequence", "0000.12345"},
		"no version":           {"sequence", "65535.0"},
		"a short digest":       {"digest", "0123"},
		"a long digest":        {"digest", someDigest.String() + "00"},
		"a digest that is not": {"digest", "0123ab0000000000000000000000000g"},
	}
	for name, a := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := AckedFrom(getter(m, a))
			if err == nil || got != (Acked{}) {
				t.Errorf("AckedFrom = %+v, %v; want an error", got, err)
			}
			want := InvalidAttribute
			if a.Name == "type" {
				want = InvalidEvent
			}
			if got := ReasonOf(err); got != want {
				t.Errorf("reason %s, want %s", got, want)
			}
		})
	}
}

func TestObjectFromData(t *testing.T) {
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) { checkObjectFromData(t, builder, tt.change) })
		t.Run(tt.name+" as a change", func(t *testing.T) { checkObjectFromData(t, changeBuilder, tt.change) })
	}
}

func checkObjectFromData(t *testing.T, b Builder, c Change) {
	t.Helper()
	m, err := b.Message(c)
	if err != nil {
		t.Fatal(err)
	}
	text, err := ObjectIn(m.Attribute, m.Data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ObjectFromData(m.Attribute, m.Data)
	if err != nil {
		t.Fatal(err)
	}
	whole := !c.Object.Body.None() && !c.Truncated
	if got.Body.None() == whole || whole && (textOf(got) != string(text) || textOf(got) != textOf(c.Object)) {
		t.Errorf("body %s, want it whole: %t", textOf(got), whole)
	}
	if whole && got.Digest != c.Object.Digest {
		t.Errorf("digest %q, want %q", got.Digest, c.Object.Digest)
	}
	want, r := *c.Object, c.Resource
	if r.Version != "" {
		want.APIVersion, want.Kind = r.APIVersion(), r.Kind
	}
	got.Body, want.Body = Body{}, Body{}
	if !equalObjects(*got, want) {
		t.Errorf("ObjectFromData = %+v, want %+v", *got, want)
	}
}

// TestDeleteOfTruncatedHasFinalStateUnknown verifies the delete of an object that was deleted while
// no forwarder ran and is truncated on the bus. The event must not present the metadata as the last
// state.
func TestDeleteOfTruncatedHasFinalStateUnknown(t *testing.T) {
	m, err := builder.Message(change(deployments, "default", "web", func(c *Change) { c.Truncated = true }))
	if err != nil {
		t.Fatal(err)
	}
	o, err := ObjectFromData(m.Attribute, m.Data)
	if err != nil {
		t.Fatal(err)
	}
	d, err := builder.Message(change(deployments, "default", "web", func(c *Change) { c.Type, c.Object = Deleted, o }))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Attribute("finalstateunknown"); got != "true" {
		t.Errorf("finalstateunknown = %q, want true", got)
	}
}

func TestObjectFromDataCopies(t *testing.T) {
	m, err := builder.Message(change(deployments, "default", "web", nil))
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Clone(m.Data)
	o, err := ObjectFromData(m.Attribute, data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if textOf(o) != string(m.Data) {
		t.Errorf("body %q changed with the data it came from", textOf(o))
	}
}

func TestObjectFromDataRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":              ``,
		"not JSON":             `canary`,
		"no object":            `["canary"]`,
		"no metadata":          `{"kind":"canary"}`,
		"a name that is not":   `{"metadata":{"uid":"u","name":{"a":"canary"}}}`,
		"another uid":          `{"metadata":{"uid":"v","name":"canary"}}`,
		"another version":      `{"metadata":{"uid":"u","resourceVersion":"6","name":"canary"}}`,
		"a uid in other case":  `{"metadata":{"UID":"u","name":"canary"}}`,
		"metadata, other case": `{"Metadata":{"uid":"u","name":"canary"}}`,
	}
	get := func(name string) string {
		return map[string]string{"id": "u.1", "uid": "u", "resourceversion": "5"}[name]
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := ObjectFromData(get, []byte(data))
			if err == nil {
				t.Fatalf("ObjectFromData(%s) = %+v, want an error", data, o)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("the error contains the content of the object: %v", err)
			}
		})
	}
}

// TestObjectInRefuses verifies that an event with the dataschema of a change is refused if its data
// is not a change. The error must not quote the data.
func TestObjectInRefuses(t *testing.T) {
	get := func(name string) string {
		return map[string]string{"id": "u.1", "uid": "u", "dataschema": SchemaChange}[name]
	}
	for _, data := range []string{``, `canary`, `{}`, `[]`, `{"Object":{"metadata":{"uid":"u"}}}`, `{"previous":{"object":{}}}`, `{"object":{"metadata":{"uid":"u"}}`} {
		if o, err := ObjectIn(get, []byte(data)); err == nil {
			t.Errorf("ObjectIn(%s) = %s, want an error", data, o)
		}
		if o, err := ObjectFromData(get, []byte(data)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("ObjectFromData(%s) = %+v, %v, want an error without the data", data, o, err)
		}
	}
}

func equalObjects(a, b Object) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name &&
		a.UID == b.UID && a.ResourceVersion == b.ResourceVersion && textOf(&a) == textOf(&b)
}

// TestIsTruncated verifies that IsTruncated recognizes the data of each truncated event, and that
// the other events have no truncated data.
func TestIsTruncated(t *testing.T) {
	for _, b := range []Builder{builder, changeBuilder} {
		for _, tt := range changes {
			c := tt.change
			m, err := b.Message(c)
			if err != nil {
				t.Fatal(err)
			}
			data, err := truncatedFromData(m.Attribute, m.Data)
			if err != nil || data.None() == c.Truncated {
				t.Fatalf("%s: data of %s, err %v, want data: %t", tt.name, data, err, c.Truncated)
			}
			if !c.Truncated {
				continue
			}
			if same, err := IsTruncated(data, c.Object, c.Resource); !same || err != nil {
				t.Errorf("%s: same %t, err %v", tt.name, same, err)
			}
			other := *c.Object
			other.Kind += "2"
			if same, err := IsTruncated(data, &other, c.Resource); same || err != nil {
				t.Errorf("%s, of another kind: same %t, err %v", tt.name, same, err)
			}
		}
	}
}

// TestAmbiguousData verifies that data with duplicate members has no body, because parsers differ
// in which duplicate they use.
func TestAmbiguousData(t *testing.T) {
	get := func(name string) string { return map[string]string{"uid": "u", "resourceversion": "5"}[name] }
	const head = `{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"5"}`
	for name, c := range map[string]struct {
		data      string
		ambiguous bool
	}{
		"none twice":                {head + `,"data":{"a":"b","b":{"a":[{"a":1},{"a":1}]}}}`, false},
		"at the top":                {head + `,"data":{"a":"FORGED"},"data":{"a":"b"}}`, true},
		"in an object":              {head + `,"data":{"a":"FORGED","b":"","a":"b"}}`, true},
		"in an array":               {head + `,"data":[1,{"a":1,"a":1}]}`, true},
		"with an escape":            {head + `,"data":{"a":"FORGED","\u0061":"b"}}`, true},
		"too deep for a comparison": {head + `,"data":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, true},
		"more than any object has":  {head + `,"data":{` + manyMembers(maxStateMembers) + `}}`, true},
		"nearly as many":            {head + `,"data":{` + manyMembers(maxStateMembers-10) + `}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := ObjectFromData(get, []byte(c.data))
			if err != nil || o.Body.None() != c.ambiguous {
				t.Errorf("got %v, %v", o, err)
			}
			truncatedGet := func(name string) string {
				if name == truncated {
					return "true"
				}
				return get(name)
			}
			if body, err := truncatedFromData(truncatedGet, []byte(c.data)); err != nil || body.None() != c.ambiguous {
				t.Errorf("of a truncated event: %s, %v", body, err)
			}
		})
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	return b.String()[1:]
}
