package projection_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/projection"
)

func TestErrors(t *testing.T) {
	const (
		forms  = "; write it as pods, deployments.apps, deployments.v1.apps, *.apps, or *"
		filter = `a filter compares one field of an element with a string, a number, true, or false; write it as [?(@.type=="Ready")]`
		shut   = "a bracket is not closed; put ] after the name"
	)
	identity := func(name string) string {
		return "it contains " + name + ", which identifies the object; list the other fields one by one"
	}
	for _, tc := range []struct{ entry, want string }{
		{"nodes", "a resource or a path is missing; write both with a colon between them, as in nodes:.status, or *:.status for all resources"},
		{".status", "a resource or a path is missing; write both with a colon between them, as in nodes:.status, or *:.status for all resources"},
		{":.status", "the resource before the colon is missing; write one, or * for all resources"},
		{"nodes..x:.status", "a part before, after, or between dots is empty" + forms},
		{"no*:.status", "* cannot stand for a part of a name" + forms},
		{"nodes.B_c:.status", `"B_c" is not the name of a group` + forms},
		{"deployments.v1.apps:.status", `an entry applies to every version of a resource; remove ".v1"`},
		{"nodes.v1:.status", `an entry applies to every version of a resource; remove ".v1"`},

		{"nodes:", `the path after the colon is missing; write it as .status or .metadata.annotations["example.com/checksum"]`},
		{"nodes:status", "a path begins with a dot; add one"},
		{"nodes:{.status}", "a path has no braces; remove { and }"},
		{"nodes:$.status", "a path always begins at the object; remove $"},
		{"nodes:@.status", "a path always begins at the object; remove @"},
		{"nodes:.", "a name is missing after a dot; add one, or remove the dot"},
		{"nodes:.status.", "a name is missing after a dot; add one, or remove the dot"},
		{"nodes:.a.[*]", "a name is missing after a dot; add one, or remove the dot"},
		{"nodes:..name", "recursive descent (..) is not supported; write the whole path, or [*] for everything at one level"},
		{"nodes:.a[*]b", `"b" cannot follow the part before it; put a dot before a name, or quote the whole name as ["…"]`},
		{"nodes:.a*", `"*" cannot be in an unquoted name; write the name as ["…"]`},
		{"nodes:.a b", `" " does not separate entries; use a comma or a line break, or quote a name that contains it, as ["…"]`},
		{"nodes:.status;pods:.status", `";" does not separate entries; use a comma or a line break, or quote a name that contains it, as ["…"]`},
		{"nodes: .status", "there is a space after the colon; remove it"},
		{"nodes:/status/images", "a path is not a JSON Pointer; write it with dots, as in .status.images"},
		{"nodes:.äb", `"ä" cannot be in an unquoted name; write the name as ["…"]`},
		{`nodes:.a\`, "the path ends with a backslash; remove it"},
		{"nodes:.metadata.annotations.example.com/checksum", `a dot in a name must be quoted or escaped, and "com/checksum" looks like the end of such a name; write it as ["example.com/checksum"] or .example\.com/checksum`},
		{"nodes:.l[0].a", `positions such as [0] are not supported, because they change when elements are dropped; write [*] for all elements, or [?(@.name=="…")] for some`},
		{"nodes:.l[-1:]", `positions such as [-1:] are not supported, because they change when elements are dropped; write [*] for all elements, or [?(@.name=="…")] for some`},
		{"nodes:.l[abc]", `[abc] is neither a quoted name nor [*]; quote a name, as in ["example.com/checksum"]`},
		{"nodes:.l[]", `[] is neither a quoted name nor [*]; quote a name, as in ["example.com/checksum"]`},
		{"nodes:.l[", shut},
		{"nodes:.l[*", shut},
		{`nodes:.l["a"`, shut},
		{`nodes:.l["a","b"]`, "brackets hold one name; write a separate entry for each name"},
		{`nodes:.l[""]`, "the name between the quotes is empty; write one"},
		{`nodes:.l["a]`, `a quote is not closed; put " after the name`},
		{`nodes:.l['a\'`, `a quote is not closed; put ' after the name`},
		{"nodes:.l[?(@.a)]", filter},
		{`nodes:.l[?(@.a!="b")]`, filter},
		{`nodes:.l[?(@.a=="b" && @.c=="d")]`, filter},
		{`nodes:.l[?(@=="b")]`, filter},
		{`nodes:.l[?@.a=="b"]`, filter},
		{`nodes:.l[?(@.a.=="b")]`, filter},
		{`nodes:.l[?(@.a==b)]`, filter},
		{`nodes:.l[?(@.a==null)]`, filter},
		{`nodes:.l[?(@.a==@.b)]`, filter},
		{`nodes:.l[?(@.a==`, filter},
		{`nodes:.l[?(@.a=="b")`, filter},

		{"nodes:.apiVersion", identity("apiVersion")},
		{"*:.kind", identity("kind")},
		{"*:.metadata", identity("metadata.name")},
		{"*:.metadata.name", identity("metadata.name")},
		{`*:["metadata"]['namespace']`, identity("metadata.namespace")},
		{`*:.metadata.u\id`, identity("metadata.uid")},
		{"*:.metadata.resourceVersion", identity("metadata.resourceVersion")},
		{"*:[*]", identity("apiVersion")},
		{"*:.*.name", identity("metadata.name")},
		{"*:.metadata.*", identity("metadata.name")},
		{"*:.*[*]", identity("metadata.name")},
	} {
		t.Run(tc.entry, func(t *testing.T) {
			_, err := projection.ParseDrop([]string{tc.entry})
			if err == nil {
				t.Fatal("no error")
			}
			got, ok := strings.CutPrefix(err.Error(), "KUBERELAY_DROP_FIELDS: "+quote(t, tc.entry)+": ")
			if !ok || got != tc.want {
				t.Errorf("\ngot  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := projection.ParseDrop([]string{"nodes", "*:.status", "pods:x"})
	if err == nil || strings.Count(err.Error(), "KUBERELAY_DROP_FIELDS: ") != 2 {
		t.Errorf("got %v, want two lines", err)
	}
}

// FuzzParse verifies that the parser handles any input, and that every error says how to correct
// the input.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"nodes:.a", `*:.a["b"]`, "x", `*.apps:.l[?(@.a=='b')].*`, `a:.b\.c[*]`, "deployments.v1.apps:.x", `a:['x`, "a:[?(@.x==1e5)]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, err := projection.ParseDrop([]string{s})
		if err != nil && !strings.Contains(err.Error(), "; ") {
			t.Errorf("%q: the error has no correction: %v", s, err)
		}
	})
}

func quote(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}
