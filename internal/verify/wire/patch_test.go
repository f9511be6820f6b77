package wire

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestChangeOf verifies that ChangeOf applies a patch as a subscriber does, and refuses a patch that
// the forwarder never writes.
func TestChangeOf(t *testing.T) {
	const refused = "refused"
	long := `{"a":[` + strings.Repeat("1,", maxRemoved) + `1]}`
	for _, tc := range []struct{ previous, patch, want string }{
		{`null`, `null`, `null`},
		{`{"a":1}`, `[]`, `{"a":1}`},
		{`{"a":1}`, `[{"op":"replace","path":"/a","value":2}]`, `{"a":2}`},
		{`{"a":1}`, `[{"op":"replace","path":"","value":{"b":2}}]`, `{"b":2}`},
		{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"remove","path":"/a"}]`, `{"b":null}`},
		{`{"a/b":{"~":1}}`, `[{"op":"replace","path":"/a~1b/~0","value":2}]`, `{"a/b":{"~":2}}`},
		{`{"a":[1,2,3,{"b":4}]}`, `[{"op":"replace","path":"/a/3/b","value":5},{"op":"remove","path":"/a/1"},{"op":"add","path":"/a/-","value":6}]`, `{"a":[1,3,{"b":5},6]}`},
		{`{"":{"":1}}`, `[{"op":"replace","path":"//","value":2}]`, `{"":{"":2}}`},

		{`{"a":1}`, `null`, refused},
		{`null`, `[]`, refused},
		{`{"a":1}`, `{}`, refused},
		{`{"a":1}`, `[1]`, refused},
		{`{"a":1}`, `[{"op":"add","path":"/a","value":2}]`, refused},
		{`{"a":1}`, `[{"op":"replace","path":"/b","value":2}]`, refused},
		{`{"a":1}`, `[{"op":"replace","path":"/a"}]`, refused},
		{`{"a":1}`, `[{"op":"replace","path":"a","value":2}]`, refused},
		{`{"a":1}`, `[{"op":"replace","path":"x/a","value":2}]`, refused},
		{`{"a":1}`, `[{"op":"replace","value":{}}]`, refused},
		{`{"a":1}`, `[{"op":"replace","path":"","value":1}]`, refused},
		{`{"a":1}`, `[{"op":"replace","path":"/a/b","value":1}]`, refused},
		{`{"a":1}`, `[{"op":"remove","path":""}]`, refused},
		{`{"a":1}`, `[{"op":"remove","path":"/b"}]`, refused},
		{`{"a":1}`, `[{"op":"remove","path":"/a","value":1}]`, refused},
		{`{"a":1}`, `[{"op":"test","path":"/a","value":1}]`, refused},
		{`{"a":[1]}`, `[{"op":"add","path":"/a/0","value":2}]`, refused},
		{`{"a":[1]}`, `[{"op":"replace","path":"/a/-","value":2}]`, refused},
		{`{"a":[1]}`, `[{"op":"replace","path":"/a/1","value":2}]`, refused},
		{`{"a":[1]}`, `[{"op":"replace","path":"/a/-1","value":2}]`, refused},
		{long, `[{"op":"remove","path":"/a/1"}]`, strings.Replace(long, "1,", "", 1)},
		{long, `[{"op":"remove","path":"/a/0"}]`, refused},
	} {
		e := Event{attributes: map[string]string{"dataschema": changeSchema}, Data: fmt.Appendf(nil, `{"object":{},"previous":%s,"patch":%s}`, tc.previous, tc.patch)}
		previous, patched, err := e.ChangeOf()
		got, _ := json.Marshal(patched)
		if err != nil {
			got = []byte(refused)
		}
		if string(got) != tc.want {
			t.Errorf("%s with %s: got %s, want %s", tc.previous, tc.patch, got, tc.want)
		}
		if was, _ := json.Marshal(previous); err == nil && string(was) != tc.previous {
			t.Errorf("%s with %s: the previous state is %s", tc.previous, tc.patch, was)
		}
	}
}

// TestChangeOfTheForwarder verifies that every patch that the forwarder writes turns the previous
// state into the object.
func TestChangeOfTheForwarder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var random func(levels int) any
	random = func(levels int) any {
		switch n := r.IntN(8); {
		case n < 3 && levels > 0:
			object := Tree{}
			for range r.IntN(4) {
				object[[]string{"", "a", "b/", "~1"}[r.IntN(4)]] = random(levels - 1)
			}
			return object
		case n < 5 && levels > 0:
			list := make([]any, r.IntN(4))
			for i := range list {
				list[i] = random(levels - 1)
			}
			return list
		default:
			return []any{nil, "a", "é", true}[r.IntN(4)]
		}
	}
	for range 2000 {
		before, _ := json.Marshal(Tree{"x": random(3), "y": random(3)})
		after, _ := json.Marshal(Tree{"x": random(3), "z": random(3)})
		patch, err := event.PatchOf(before, after)
		if err != nil {
			t.Fatal(err)
		}
		e := Event{attributes: map[string]string{"dataschema": changeSchema}, Data: fmt.Appendf(nil, `{"object":%s,"previous":%s,"patch":%s}`, after, before, patch)}
		object, _ := e.ObjectOf()
		if _, patched, err := e.ChangeOf(); err != nil || !reflect.DeepEqual(patched, object) {
			t.Fatalf("%s: got %v, %v", e.Data, patched, err)
		}
	}
}
