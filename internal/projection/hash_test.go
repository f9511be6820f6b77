package projection_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/projection"
)

// hashing returns a hash function whose results show the place and the value.
func hashing(t testing.TB) decode.Hash {
	return func(path []string, v any) any { return fmt.Sprintf("#%s=%s", strings.Join(path, "/"), encode(t, v)) }
}

func TestHash(t *testing.T) {
	for name, tc := range map[string]struct {
		drop, hash []string
		from, want string
	}{
		"a field":                           {nil, []string{".a"}, `{"a":"x","b":"y"}`, `{"a":"#a=\"x\"","b":"y"}`},
		"an object as a whole":              {nil, []string{".a"}, `{"a":{"c":[1]}}`, `{"a":"#a={\"c\":[1]}"}`},
		"null, empty and bools":             {nil, []string{".a[*]"}, `{"a":[null,"",true,{}]}`, `{"a":["#a/0=null","#a/1=\"\"","#a/2=true","#a/3={}"]}`},
		"each field":                        {nil, []string{".a[*]"}, `{"a":{"x":1,"y":2}}`, `{"a":{"x":"#a/x=1","y":"#a/y=2"}}`},
		"a condition":                       {nil, []string{`.l[?(@.k=="p")].v`}, `{"l":[{"k":"o","v":1},{"k":"p","v":2}]}`, `{"l":[{"k":"o","v":1},{"k":"p","v":"#l/1/v=2"}]}`},
		"elements":                          {nil, []string{`.l[?(@.k=="p")]`}, `{"l":[1,{"k":"p"}]}`, `{"l":[1,"#l/1={\"k\":\"p\"}"]}`},
		"a condition on a hashed field":     {nil, []string{`.l[?(@.k=="p")].v`, ".l[*].k"}, `{"l":[{"k":"p","v":2}]}`, `{"l":[{"k":"#l/0/k=\"p\"","v":"#l/0/v=2"}]}`},
		"a drop by a hashed field":          {[]string{`.l[?(@.k=="p")].v`}, []string{".l[*].k"}, `{"l":[{"k":"p","v":2}]}`, `{"l":[{"k":"#l/0/k=\"p\""}]}`},
		"a hash by a dropped field":         {[]string{".l[*].k"}, []string{`.l[?(@.k=="p")].v`}, `{"l":[{"k":"p","v":2}]}`, `{"l":[{"v":"#l/0/v=2"}]}`},
		"positions are those before a drop": {[]string{`.l[?(@.k=="o")]`}, []string{".l[*].v"}, `{"l":[{"k":"o","v":1},{"k":"p","v":2}]}`, `{"l":[{"k":"p","v":"#l/1/v=2"}]}`},
		"dropped and hashed":                {[]string{".a"}, []string{".a"}, `{"a":1,"b":2}`, `{"b":2}`},
		"a part is dropped":                 {[]string{".a.x"}, []string{".a"}, `{"a":{"x":1,"y":2}}`, `{"a":"#a={\"y\":2}"}`},
		"all of it is dropped":              {[]string{".a.x"}, []string{".a"}, `{"a":{"x":1},"b":2}`, `{"b":2}`},
		"two paths, one hash":               {nil, []string{".a.b", ".a[*]"}, `{"a":{"b":1}}`, `{"a":{"b":"#a/b=1"}}`},
		"two paths through one name":        {nil, []string{".a.b.c", ".a[*].c"}, `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":"#a/b/c=1"}}}`},
		"other forms than expected":         {nil, []string{".a.b", ".l[*].x", ".n[*]"}, `{"a":"text","l":{"x":1},"n":7}`, `{"a":"text","l":{"x":1},"n":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			drop, err := projection.ParseDrop(entries("*", tc.drop))
			if err != nil {
				t.Fatal(err)
			}
			hash, err := projection.ParseHash(entries("*", tc.hash))
			if err != nil {
				t.Fatal(err)
			}
			reversed, err := projection.ParseHash(entries("*", reversed(tc.hash)))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []projection.Projections{drop.And(hash), reversed.And(drop)} {
				object, shape := parsed(t, tc.from), p.For(nodes)
				dropped := shape.Project(object, hashing(t))
				if got, want := encode(t, object), encode(t, parsed(t, tc.want)); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				if shape.Drops != (len(tc.drop) > 0) || dropped != shape.Drops {
					t.Errorf("drops %v, dropped %v", shape.Drops, dropped)
				}
			}
		})
	}
}

func TestParseHash(t *testing.T) {
	_, err := projection.ParseHash([]string{"*:.metadata", "pods:x"})
	if err == nil || strings.Count(err.Error(), "KUBERELAY_HASH_FIELDS: ") != 2 {
		t.Errorf("the error is %v", err)
	}
}

// TestKnown verifies that each entry of the list is valid, names one resource in one group, and is
// in docs/choosing.md. The page must have no other entries.
func TestKnown(t *testing.T) {
	page, err := os.ReadFile("../../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Fields that are known to hold secrets")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9.-]+)` \\| (.*) \\| [^|]* \\|$").FindAllStringSubmatch(section, -1) {
		for _, path := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			documented = append(documented, row[1]+":"+path[1])
		}
	}
	var all []event.Resource
	for _, entry := range documented {
		resource, _, _ := strings.Cut(entry, ":")
		name, group, ok := strings.Cut(resource, ".")
		if !ok {
			t.Errorf("%s has no group", entry)
		}
		if group == "core" {
			group = ""
		}
		all = append(all, event.Resource{Group: group, Version: "v1", Resource: name, Kind: "K"})
	}
	known := projection.Known().Entries(all)
	slices.Sort(known)
	slices.Sort(documented)
	if !slices.Equal(known, documented) {
		t.Errorf("the list has\n%s\nthe page has\n%s", strings.Join(known, "\n"), strings.Join(documented, "\n"))
	}
	if unmatched := projection.Known().Unmatched(all); len(unmatched) > 0 || len(known) < 50 {
		t.Errorf("%d entries; not on the page: %q", len(known), unmatched)
	}
}

// TestKnownInCopies verifies that a field is also hashed where another type has a copy of the object.
func TestKnownInCopies(t *testing.T) {
	const template = `{"parameters":[{"value":"canary"}],"objects":[{"kind":"Secret","data":{"a":"canary"},"metadata":{"annotations":{"b":"canary"}}}]}`
	const machine = `{"spec":{"volumes":[{"cloudInitNoCloud":{"userData":"canary"}},{"cloudInitConfigDrive":{"userDataBase64":"canary"}}]}}`
	for resource, object := range map[string]string{
		"templates.template.openshift.io":               template,
		"templateinstances.template.openshift.io":       `{"spec":{"template":` + template + `}}`,
		"virtualmachineinstances.kubevirt.io":           machine,
		"virtualmachines.kubevirt.io":                   `{"spec":{"template":` + machine + `}}`,
		"virtualmachineinstancereplicasets.kubevirt.io": `{"spec":{"template":` + machine + `}}`,
		"controllerrevisions.apps":                      `{"data":{"spec":{"template":` + machine + `}}}`,
		"virtualmachinepools.pool.kubevirt.io":          `{"spec":{"virtualMachineTemplate":{"spec":{"template":` + machine + `}}}}`,
	} {
		name, group, _ := strings.Cut(resource, ".")
		o := parsed(t, object)
		if project := projection.Known().For(event.Resource{Group: group, Version: "v1", Resource: name, Kind: "K"}).Project; project != nil {
			project(o, func([]string, any) any { return "hash" })
		}
		if got := encode(t, o); strings.Contains(got, "canary") {
			t.Errorf("%s: %s", resource, got)
		}
	}
}

func TestReadable(t *testing.T) {
	clients := event.Resource{Group: "oauth.openshift.io", Version: "v1", Resource: "oauthclients", Kind: "OAuthClient"}
	works := event.Resource{Group: "work.karmada.io", Version: "v1alpha1", Resource: "works", Kind: "Work"}
	all := projection.Known().Entries([]event.Resource{clients, works})
	for name, tc := range map[string]struct {
		drop, hash []string
		left       int
	}{
		"nothing":                {nil, nil, len(all)},
		"the list":               {nil, all, 0},
		"dropped":                {all, nil, 0},
		"a whole":                {[]string{"*:.spec"}, []string{"OAuthClient:.additionalSecrets", "oauthclients:.secret"}, 0},
		"one of them":            {nil, []string{"oauthclients:.secret"}, len(all) - 1},
		"another resource":       {nil, []string{"oauthclients.example.com:.secret"}, len(all)},
		"a part of them":         {nil, []string{`works:.spec.workload.manifests[?(@.kind=="Secret")].data.password`}, len(all)},
		"those of one condition": {nil, []string{`works:.spec.workload.manifests[?(@.kind=="Secret")]`}, 2},
		"of another condition":   {nil, []string{`works:.spec.workload.manifests[?(@.kind=="ConfigMap")]`}, len(all)},
		"with every element":     {nil, []string{`works:.spec.workload.manifests[*]`}, 2},
	} {
		drop, err := projection.ParseDrop(tc.drop)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := projection.ParseHash(tc.hash)
		if err != nil {
			t.Fatal(err)
		}
		if left := drop.And(hash).Readable(projection.Known(), []event.Resource{nodes, clients, works}); len(left) != tc.left {
			t.Errorf("%s: %d are readable, want %d: %q", name, len(left), tc.left, left)
		}
	}
}

// TestMentions verifies that an object is decoded only if it may have a field to hash, however its
// text spells the names.
func TestMentions(t *testing.T) {
	for text, paths := range map[string]map[string]bool{
		`{"data":{"a":"release"}}`:      {".data.release": true}, // the name is a value here, so the object is decoded without need
		`{"data":{"a":"b"}}`:            {".data.release": false, ".data[*]": true, `.data["a\"b"]`: true, `.data["a/b"]`: true, ".data.a": true},
		`{"data":{"releases":"b"}}`:     {".data.release": false},
		`{"data":{"rele\u0061se":"b"}}`: {".data.release": true},
		`{"l":[{"k":"p","v":1}]}`:       {`.l[?(@.k=="p")].v`: true, `.l[?(@.k=="p")].w`: false, `.l[?(@.k=="p")]`: true},
	} {
		for path, want := range paths {
			p, err := projection.ParseHash([]string{"*:" + path})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.For(nodes).Mentions([]byte(text)); got != want {
				t.Errorf("%s in %s: %v", path, text, got)
			}
		}
	}
}
