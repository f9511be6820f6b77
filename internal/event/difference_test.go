package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event/codec"
	"github.com/kuberelay/kuberelay/test/lab/podtest"
)

var changeBuilder = Builder{Cluster: builder.Cluster, Data: DataChange}

// checkChange builds the event of c with the change as data. It compares this event with bare,
// whose data is the object, and applies its patch with a library.
func checkChange(t *testing.T, c Change, bare *Message) {
	t.Helper()
	m, err := changeBuilder.Message(c)
	if err != nil {
		t.Fatal(err)
	}
	checkWithSDK(t, m)
	if got := m.Attribute("dataschema"); got != SchemaChange {
		t.Errorf("dataschema %q, want %q", got, SchemaChange)
	}
	withoutSchema := slices.DeleteFunc(slices.Clone(m.Attributes), func(a Attribute) bool { return a.Name == "dataschema" })
	if !slices.Equal(withoutSchema, bare.Attributes) || m.ID != bare.ID || m.Acked != bare.Acked {
		t.Errorf("apart from its data:\n got %+v\nwant %+v", m, bare)
	}
	d := changeIn(t, m)
	if string(d.Object) != string(bare.Data) {
		t.Errorf("object %s, want %s", d.Object, bare.Data)
	}
	if c.Before == nil || c.Truncated {
		if string(d.Previous) != "null" || string(d.Patch) != "null" {
			t.Errorf("previous %s, patch %s; want null", d.Previous, d.Patch)
		}
		return
	}
	if string(d.Previous) != textOf(c.Before) {
		t.Errorf("previous %s, want %s", d.Previous, textOf(c.Before))
	}
	checkPatch(t, d.Previous, d.Patch, d.Object)
}

func TestChangeGolden(t *testing.T) {
	m, err := changeBuilder.Message(change(deployments, "default", "web", before(threeReplicas.Replace)))
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "change", m)
}

type changeJSON struct{ Object, Previous, Patch json.RawMessage }

// changeIn decodes the data of an event, and fails if the data has members that a change doesn't have.
func changeIn(t *testing.T, m *Message) changeJSON {
	t.Helper()
	var d changeJSON
	dec := json.NewDecoder(bytes.NewReader(m.Data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("%v in %s", err, m.Data)
	}
	if want := fmt.Sprintf(`{"object":%s,"previous":%s,"patch":%s}`, d.Object, d.Previous, d.Patch); string(m.Data) != want {
		t.Fatalf("data %s, want %s", m.Data, want)
	}
	return d
}

func TestChanged(t *testing.T) {
	for _, tt := range []struct{ name, from, to, want string }{
		{"two", `"replicas":3`, `"replicas":2,"paused":true`, "/spec/paused,/spec/replicas"},
		{"escapes", `"app":"web"`, `"a,b/c%é \u0007~":""`, "/metadata/labels/a%2Cb~1c%25%C3%A9%20%07~0,/metadata/labels/app"},
		{"nothing but the version", `"replicas":3`, ` "replicas" : 3 `, ""},
		{"a resourceVersion elsewhere", `"replicas":3`, `"replicas":3,"metadata":{"resourceVersion":"1"}`, "/spec/metadata"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := builder.Message(change(deployments, "default", "web", before(func(s string) string { return strings.Replace(s, tt.from, tt.to, 1) })))
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Attribute("changed"); got != tt.want {
				t.Errorf("changed %q, want %q", got, tt.want)
			}
			checkWithSDK(t, m)
			for n, a := range m.Attributes {
				if a.Name == "changed" && m.Attributes[n-1].Name != "previousversion" {
					t.Errorf("it comes after %s", m.Attributes[n-1].Name)
				}
			}
		})
	}
}

// TestChangedUnknown verifies that an event has a previous state only if it is an update and the
// state is that of the object's last event.
func TestChangedUnknown(t *testing.T) {
	known := change(deployments, "default", "web", before(threeReplicas.Replace))
	if m, err := changeBuilder.Message(known); err != nil || m.Attribute("changed") == "" || string(changeIn(t, m).Previous) == "null" {
		t.Fatalf("the state before is not known: %+v, %v", m, err)
	}
	for name, alter := range map[string]func(c *Change, before *Object){
		"created":             func(c *Change, _ *Object) { c.Type = Created },
		"a snapshot":          func(c *Change, _ *Object) { c.Type = Snapshot },
		"deleted":             func(c *Change, _ *Object) { c.Type = Deleted },
		"deselected":          func(c *Change, _ *Object) { c.Type = Deselected },
		"none":                func(c *Change, _ *Object) { c.Before = nil },
		"no body":             func(_ *Change, b *Object) { b.Body = Body{} },
		"another uid":         func(_ *Change, b *Object) { b.UID = "other" },
		"another version":     func(_ *Change, b *Object) { b.ResourceVersion = "11999" },
		"not an object":       func(_ *Change, b *Object) { b.Body = JSON([]byte(`[]`)) },
		"not JSON":            func(_ *Change, b *Object) { b.Body = JSON([]byte(`{"a":canary}`)) },
		"not to be unpacked":  func(_ *Change, b *Object) { b.Body = Body{bytes: []byte("canary"), packed: codec.Plain} },
		"not JSON, truncated": func(c *Change, b *Object) { c.Truncated, b.Body = true, JSON([]byte(`{`)) },
	} {
		t.Run(name, func(t *testing.T) {
			c, before := known, *known.Before
			c.Before = &before
			alter(&c, &before)
			m, err := changeBuilder.Message(c)
			if err != nil {
				t.Fatal(err)
			}
			if d := changeIn(t, m); m.Attribute("changed") != "" || string(d.Previous) != "null" || string(d.Patch) != "null" {
				t.Errorf("changed %q, previous %s, patch %s; want none", m.Attribute("changed"), d.Previous, d.Patch)
			}
		})
	}
}

// TestPreviousTooDeep verifies that an event omits a previous state that is nested so deeply that
// parsers would reject the event.
func TestPreviousTooDeep(t *testing.T) {
	c := change(deployments, "default", "web", before(threeReplicas.Replace))
	for levels, want := range map[int]bool{9_980: true, 9_995: false} {
		was := *c.Before
		was.Body = JSON([]byte(`{"a":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `}`))
		c.Before = &was
		m, err := changeBuilder.Message(c)
		if err != nil {
			t.Fatal(err)
		}
		if d := changeIn(t, m); (string(d.Previous) != "null") != want || (string(d.Patch) != "null") != want {
			t.Errorf("%d levels: previous %t, patch %t, want %t", levels, string(d.Previous) != "null", string(d.Patch) != "null", want)
		}
	}
}

// TestChangedTooLong verifies that the attribute "changed" omits whole places at its end if they are too
// long together, and that its last entry marks the omission.
func TestChangedTooLong(t *testing.T) {
	places := func(n, size int) (object string, names []string) {
		var b strings.Builder
		for i := range n {
			name := fmt.Sprintf("%0*d", size, i)
			names = append(names, "/"+name)
			fmt.Fprintf(&b, `"%s":1,`, name)
		}
		return `{` + b.String() + `"z":0}`, names
	}
	check := func(name, object, want string) {
		t.Helper()
		got, err := changedPlaces([]byte(`{"z":0}`), []byte(object))
		if err != nil || got != want || len(got) > maxChanged {
			t.Errorf("%s: %v, %d bytes, ends with %q; want %d, ending with %q", name, err, len(got), got[max(0, len(got)-20):], len(want), want[max(0, len(want)-20):])
		}
	}
	// n places of 8 bytes and their commas take 9n-1 bytes.
	object, names := places(227, 7) // 2042
	check("all fit", object, strings.Join(names, ","))
	object, names = places(228, 7) // 2051
	check("one too many", object, strings.Join(names[:227], ",")+",…")
	object, names = places(1000, 7)
	check("many too many", object, strings.Join(names[:227], ",")+",…")
	object, names = places(2, 1022) // 2047
	check("all fit, with no room for more", object, strings.Join(names, ","))
	object = strings.Replace(object, `"z"`, `"a":1,"z"`, 1)
	check("the last but one goes too", object, names[0]+",…")
	object, names = places(1, maxChanged-1)
	check("one that just fits", object, names[0])
	object, _ = places(2, maxChanged-1)
	check("one that just fits, and another", object, "…")
	object, names = places(2, maxChanged-len("/,…"))
	check("one, and just room to say that there are more", object, names[0]+",…")
	object, _ = places(2, maxChanged-len("/,…")+1)
	check("one, and no room to say that there are more", object, "…")
	object, _ = places(1, maxChanged)
	check("one that does not fit", object, "…")
	object, _ = places(1, 100_000)
	check("one that is very long", object, "…")
	check("one that does not fit encoded", `{"`+strings.Repeat("é", maxChanged/4)+`":1,"z":0}`, "…")
}

// TestMessageMemory verifies that the data of a message stays unchanged until Free, even if other
// messages use the same pool.
func TestMessageMemory(t *testing.T) {
	p := NewPacker()
	type built struct {
		m    *Message
		want string
	}
	var all []built
	for n := range 200 {
		text := podtest.Published(uint64(n))
		last := packed(p, text)
		now := packed(p, bytes.Replace(text, []byte("-information"), fmt.Appendf(nil, "-%d", n), 1))
		c := Change{
			Type: Updated, Cause: CauseWatch, Key: pods.Key(now.Namespace, now.Name), Resource: pods, Observed: observed,
			Object: now, Previous: last.ResourceVersion, Before: last, Truncated: n%10 == 9,
		}
		m, err := []Builder{builder, changeBuilder}[n%2].Message(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := m.Attribute("changed"), "/spec/env/0/value"; got != want {
			t.Fatalf("changed %q, want %q", got, want)
		}
		if n%2 == 1 && !c.Truncated {
			got := changeIn(t, m)
			if string(got.Object) != textOf(now) || string(got.Previous) != textOf(last) {
				t.Fatalf("data is of another object")
			}
			checkPatch(t, got.Previous, got.Patch, got.Object)
		}
		all = append(all, built{m, string(m.Data)})
		if n%3 == 0 {
			free := all[len(all)/2]
			all = slices.Delete(all, len(all)/2, len(all)/2+1)
			free.m.Free()
		}
		for _, b := range all {
			if string(b.m.Data) != b.want {
				t.Fatal("data of a message that is not freed has changed")
			}
		}
	}
	if kept := slices.IndexFunc(all, func(b built) bool { return b.m.memory != nil }); kept < 0 {
		t.Error("no message has pooled memory")
	}
}
