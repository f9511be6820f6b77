package tail

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

func TestPatch(t *testing.T) {
	for _, tc := range []struct{ before, after, want string }{
		{`{"a":1}`, `{"a":1}`, `[]`},
		{`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, `[{"op":"replace","path":"/a","value":12345678901234567891}]`},
		{`{"a":1}`, `{"a":1.0}`, `[{"op":"replace","path":"/a","value":1.0}]`},
		{`{"a/b~":"x"}`, `{"a/b~":"<é>"}`, `[{"op":"replace","path":"/a~1b~0","value":"<é>"}]`},
		{`{"a":1,"b":null}`, `{"b":"","c":null}`, `[{"op":"remove","path":"/a"},{"op":"replace","path":"/b","value":""},{"op":"add","path":"/c","value":null}]`},
		{`{"a":[1,2,3]}`, `{"a":[1,4]}`, `[{"op":"replace","path":"/a/1","value":4},{"op":"remove","path":"/a/2"}]`},
		{`{"a":[1,2,3,4]}`, `{"a":[1]}`, `[{"op":"remove","path":"/a/1"},{"op":"remove","path":"/a/1"},{"op":"remove","path":"/a/1"}]`},
		{`{"a":[1]}`, `{"a":[1,{"b":2},3]}`, `[{"op":"add","path":"/a/-","value":{"b":2}},{"op":"add","path":"/a/-","value":3}]`},
	} {
		if got, err := event.PatchOf([]byte(tc.before), []byte(tc.after)); err != nil || string(got) != tc.want {
			t.Errorf("%s to %s: got %s (%v), want %s", tc.before, tc.after, got, err, tc.want)
		}
	}
}

func TestJSONWithPatch(t *testing.T) {
	first, second := state(t, event.Updated, "1", rest(1)), state(t, event.Updated, "2", rest(2))
	created := state(t, event.Created, "2", rest(2))
	truncated := state(t, event.Updated, "2", rest(2), func(c *event.Change) { c.Truncated = true })
	for _, tc := range []struct {
		name       string
		event      Event
		keep       bool
		want, also string
	}{
		{"patch", second, true, `"data":{"object":` + string(second.Message.Data) + `,"previous":` + string(first.Message.Data) + `,"patch":[`, `"dataschema":"` + event.SchemaChange + `"`},
		{"not known", second, false, `,"previous":null,"patch":null}}`, `"dataschema"`},
		{"its own", asChange(second, `{"a":1}`, `[{"x":1}]`), true, `,"previous":{"a":1},"patch":[{"x":1}]}}`, `"dataschema"`},
		{"no update", created, true, `"data":{"object":` + string(created.Message.Data) + `,"previous":null,"patch":null}}`, `"dataschema"`},
		{"truncated", truncated, true, `"data":{"object":` + string(truncated.Message.Data) + `,"previous":null,"patch":null}}`, `"dataschema"`},
		{"truncated already", asChange(truncated, "null", "null"), true, `"data":{"object":` + string(truncated.Message.Data) + `,"previous":null,"patch":null}}`, `"dataschema"`},
		{"filled in", asChange(second, `null`, `null`), true, `,"previous":` + string(first.Message.Data) + `,"patch":[{"op":`, `"dataschema"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewStates()
			if tc.keep {
				s.Keep(first)
			}
			got, err := tc.event.JSONWithPatch(s.Change(tc.event))
			if err != nil || !strings.Contains(string(got), tc.want) || strings.Count(string(got), tc.also) != 1 {
				t.Errorf("got %s (%v), want %s in it", got, err, tc.want)
			}
			if m, err := event.ParseStructured(got); err != nil || m.Attribute("id") != second.Message.ID {
				t.Errorf("%s is no event: %v", got, err)
			}
		})
	}
	for _, e := range []Event{
		marker(t, event.SnapshotCompleted, deployments, 1),
		foreign("t", "s"),
	} {
		want, _ := e.JSON()
		if got, err := e.JSONWithPatch(NewStates().Change(e)); err != nil || string(got) != string(want) {
			t.Errorf("got %s (%v), want the event unchanged: %s", got, err, want)
		}
	}
}

// FuzzJSONWithPatch verifies that the patch turns the previous state into the object, and that the
// line is printable.
func FuzzJSONWithPatch(f *testing.F) {
	f.Add(`{"a":"\u001b[2J","b":[1,2,{"c":null}]}`, `{"a":"x\u2028","b":[2,{"c":"/~"}],"~/":1e3}`)
	f.Add(`{"":{"":[]}}`, `{"":{"":{}}}`)
	f.Add(`{"a":1}`, `{"a":`+strings.Repeat("[", jsoncompare.MaxDepth+1)+strings.Repeat("]", jsoncompare.MaxDepth+1)+`}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		if !json.Valid([]byte(before)) || !json.Valid([]byte(after)) || before == "" || !strings.HasPrefix(before, "{") || !strings.HasPrefix(after, "{") {
			return
		}
		e := state(t, event.Updated, "1", "")
		got, err := e.JSONWithPatch(Change{Object: json.RawMessage(after), Previous: json.RawMessage(before)})
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(string(got), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q has what does not print", got)
		}
		var line struct {
			Data struct{ Object, Previous, Patch json.RawMessage }
		}
		if err := json.Unmarshal(got, &line); err != nil {
			t.Fatal(err)
		}
		operations, err := jsonpatch.DecodePatch(line.Data.Patch)
		if err != nil {
			t.Fatal(err)
		}
		previous, _ := decode([]byte(before))
		clean, _ := json.Marshal(previous) // without duplicate names
		applied, err := operations.Apply(clean)
		if err != nil {
			t.Fatalf("%s does not apply to %s: %v", line.Data.Patch, clean, err)
		}
		is, _ := decode(applied)
		want, _ := decode(line.Data.Object)
		if !reflect.DeepEqual(is, want) {
			t.Errorf("%s makes %s of %s, want %s", line.Data.Patch, applied, clean, after)
		}
	})
}
