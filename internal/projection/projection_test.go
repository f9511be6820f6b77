package projection_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/projection"
)

var (
	nodes       = event.Resource{Version: "v1", Resource: "nodes", Kind: "Node"}
	deployments = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	widgets     = event.Resource{Group: "example.com", Version: "v1beta1", Resource: "widgets", Kind: "Widget", Namespaced: true}
)

func TestProject(t *testing.T) {
	for _, tc := range []struct {
		name       string
		paths      []string
		from, want string
	}{
		{"a field", []string{".status"}, `{"spec":{"a":1},"status":{"b":2}}`, `{"spec":{"a":1}}`},
		{"a field of a field", []string{".spec.a"}, `{"spec":{"a":1,"b":2}}`, `{"spec":{"b":2}}`},
		{"a field of each element", []string{".l[*].a"}, `{"l":[{"a":1,"b":1},{"b":2},{"a":3,"b":3}]}`, `{"l":[{"b":1},{"b":2},{"b":3}]}`},
		{"a field of each field", []string{".m.*.a"}, `{"m":{"x":{"a":1,"b":1},"y":{"a":2,"b":2}}}`, `{"m":{"x":{"b":1},"y":{"b":2}}}`},
		{"a quoted name", []string{`.m["example.com/a"]`, `.m['b]"c']`}, `{"m":{"example.com/a":1,"b]\"c":2,"d":3}}`, `{"m":{"d":3}}`},
		{"an escaped quote", []string{`.m["a\"b"]`}, `{"m":{"a\"b":1,"d":3}}`, `{"m":{"d":3}}`},
		{"an escaped dot", []string{`.m.example\.com/a`}, `{"m":{"example.com/a":1,"d":3}}`, `{"m":{"d":3}}`},
		{"a quoted name first", []string{`["a"].b`}, `{"a":{"b":1,"c":2}}`, `{"a":{"c":2}}`},
		{"all elements", []string{".m.l[*]"}, `{"m":{"l":[1,2],"b":1}}`, `{"m":{"b":1}}`},
		{"elements of a list of lists", []string{".l[*][*].a"}, `{"l":[[{"a":1,"b":1}],[{"a":2}]]}`, `{"l":[[{"b":1}],[{}]]}`},
		{"a filter, a field", []string{`.l[?(@.type=="Ready")].a`}, `{"l":[{"type":"Ready","a":1},{"type":"Other","a":2},{"a":3},4]}`, `{"l":[{"type":"Ready"},{"type":"Other","a":2},{"a":3},4]}`},
		{"a filter, elements", []string{`.l[?(@.x.type == 'Ready')]`}, `{"l":[{"x":{"type":"Ready"}},{"x":{"type":"Other"}},{"x":1}]}`, `{"l":[{"x":{"type":"Other"}},{"x":1}]}`},
		{"a filter by a number", []string{`.l[?(@.n==8080)]`}, `{"l":[{"n":8080},{"n":80},{"n":"8080"}]}`, `{"l":[{"n":80},{"n":"8080"}]}`},
		{"a filter by a bool", []string{`.l[?(@.n==true)]`}, `{"l":[{"n":true},{"n":false}]}`, `{"l":[{"n":false}]}`},
		{"what a filter looks at is dropped too", []string{".l[*].type", `.l[?(@.type=="Ready")].a`}, `{"l":[{"type":"Ready","a":1,"b":1}]}`, `{"l":[{"b":1}]}`},
		{"the same in another order", []string{`.l[?(@.type=="Ready")].a`, ".l[*].type"}, `{"l":[{"type":"Ready","a":1,"b":1}]}`, `{"l":[{"b":1}]}`},
		{"a name and all of a place", []string{".m.x.a", ".m[*].b"}, `{"m":{"x":{"a":1,"b":1,"c":1},"y":{"a":1,"b":1}}}`, `{"m":{"x":{"c":1},"y":{"a":1}}}`},
		{"a part and the whole", []string{".m.x.a", ".m.x"}, `{"m":{"x":{"a":1,"b":1},"y":1}}`, `{"m":{"y":1}}`},
		{"what is left empty", []string{".metadata.annotations.a"}, `{"metadata":{"annotations":{"a":"1"},"name":"n"}}`, `{"metadata":{"name":"n"}}`},
		{"what that leaves empty", []string{".a.b.c", ".l[*].x[*]"}, `{"a":{"b":{"c":1}},"l":[{"x":[1]},{"x":[2],"y":1}]}`, `{"l":[{},{"y":1}]}`},
		{"what was empty", []string{".a.b", ".c.d", ".l[*].b"}, `{"a":{},"c":{"e":{}},"l":[]}`, `{"a":{},"c":{"e":{}},"l":[]}`},
		{"null", []string{".a", ".b.c"}, `{"a":null,"b":{"c":null,"d":null}}`, `{"b":{"d":null}}`},
		{"other forms than expected", []string{".a.b.c", ".l[*].x", `.m[?(@.a=="b")].c`, ".n.x"}, `{"a":"text","l":{"x":1},"m":{"a":"b","c":1},"n":[{"x":1}]}`, `{"a":"text","l":{"x":1},"m":{"a":"b","c":1},"n":[{"x":1}]}`},
		{"beside the identity", []string{".metadata.labels", ".metadata.generation"}, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","labels":{"a":"b"},"generation":1}}`, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`},
		{"below the identity", []string{".*.labels", ".spec.name", ".spec.*"}, `{"kind":"Node","metadata":{"name":"n","labels":{"a":"b"}},"spec":{"name":"x"}}`, `{"kind":"Node","metadata":{"name":"n"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, paths := range [][]string{tc.paths, reversed(tc.paths)} {
				p := parse(t, "*", paths...)
				object := parsed(t, tc.from)
				p.For(nodes).Project(object, nil)
				if got, want := encode(t, object), encode(t, parsed(t, tc.want)); got != want {
					t.Errorf("%q:\ngot  %s\nwant %s", paths, got, want)
				}
			}
		})
	}
}

func TestResources(t *testing.T) {
	all := []event.Resource{nodes, deployments, widgets}
	for selector, want := range map[string][]event.Resource{
		"nodes":               {nodes},
		"node":                {nodes},
		"Node":                {nodes},
		"nodes.core":          {nodes},
		"deployments":         {deployments},
		"deployments.apps":    {deployments},
		"Widget.example.com":  {widgets},
		"widgets.example.org": nil,
		"deployments.core":    nil,
		"*":                   all,
		"*.apps":              {deployments},
		"*.core":              {nodes},
	} {
		t.Run(selector, func(t *testing.T) {
			p := parse(t, selector, ".status")
			var got []event.Resource
			for _, r := range all {
				if p.For(r).Project != nil {
					got = append(got, r)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if unmatched := p.Unmatched(all); (unmatched == nil) != (want != nil) {
				t.Errorf("unmatched are %q", unmatched)
			}
		})
	}
}

func TestNothingToDrop(t *testing.T) {
	p, err := projection.ParseDrop(nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.For(nodes).Project != nil {
		t.Error("got a function that drops nothing")
	}
}

// FuzzProject verifies the promises of the package for any paths and any object. Dropping twice is
// the same as dropping once, the order of the paths does not matter, and the identity stays.
func FuzzProject(f *testing.F) {
	f.Add(".status.conditions[*].lastHeartbeatTime\n.metadata.annotations[\"a.b/c\"]", `{"metadata":{"annotations":{"a.b/c":"1"}},"status":{"conditions":[{"lastHeartbeatTime":1}]}}`)
	f.Add(".l[*].type\n.l[?(@.type==\"Ready\")].a\n.l[?(@.a==1)]", `{"l":[{"type":"Ready","a":1},{"a":1}]}`)
	f.Add(".a.b.c\n.*.b\n.a.*[*]\n.a", `{"a":{"b":{"c":[1]}},"x":{"b":[[]]}}`)
	f.Add(".*.labels\n.*.*.x", `{"metadata":{"name":"n","labels":{"x":1}}}`)
	f.Add(".l[*][*][*]\n.l[?(@.a.b==true)].c", `{"l":[[[1,2],[]],{"a":{"b":true},"c":[]}]}`)
	f.Fuzz(func(t *testing.T, paths, text string) {
		var p []projection.Projections
		list := strings.Split(paths, "\n")
		for _, l := range [][]string{list, reversed(list)} {
			parsed, err := projection.ParseDrop(entries("*", l))
			if err != nil {
				if len(p) > 0 {
					t.Errorf("%q is invalid only in reverse order: %v", list, err)
				}
				return
			}
			p = append(p, parsed)
		}
		read := func() map[string]any {
			var object map[string]any
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			if d.Decode(&object) != nil || object == nil {
				return nil // no object
			}
			object["apiVersion"], object["kind"] = "v1", "Node"
			metadata, ok := object["metadata"].(map[string]any)
			if !ok {
				metadata = map[string]any{}
				object["metadata"] = metadata
			}
			metadata["name"], metadata["namespace"], metadata["uid"], metadata["resourceVersion"] = "n", "ns", "u", "1"
			return object
		}
		object := read()
		if object == nil {
			return
		}
		p[0].For(nodes).Project(object, nil)
		once := encode(t, object)
		metadata := object["metadata"].(map[string]any)
		if got := []any{object["apiVersion"], object["kind"], metadata["name"], metadata["namespace"], metadata["uid"], metadata["resourceVersion"]}; !slices.Equal(got, []any{"v1", "Node", "n", "ns", "u", "1"}) {
			t.Errorf("the identity is %q", got)
		}
		p[0].For(nodes).Project(object, nil)
		if twice := encode(t, object); twice != once {
			t.Errorf("once  %s\ntwice %s", once, twice)
		}
		other := read()
		p[1].For(nodes).Project(other, nil)
		if got := encode(t, other); got != once {
			t.Errorf("this order   %s\nother order  %s", once, got)
		}
	})
}

func parse(t testing.TB, resource string, paths ...string) projection.Projections {
	t.Helper()
	p, err := projection.ParseDrop(entries(resource, paths))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func entries(resource string, paths []string) []string {
	var list []string
	for _, path := range paths {
		list = append(list, resource+":"+path)
	}
	return list
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func parsed(t testing.TB, text string) map[string]any {
	t.Helper()
	var object map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}

func encode(t testing.TB, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
