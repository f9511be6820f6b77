package references

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

func TestPaths(t *testing.T) {
	const object = `{
		"metadata": {"ownerReferences": [
			{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "U", "controller": true},
			{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "N"}]},
		"involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "p"},
		"spec": {
			"template": {"spec": {"infrastructureRef": {"apiVersion": "infra.example.com/v1beta1", "kind": "MachineTemplate", "name": "m"}}},
			"infrastructureRef": {"apiGroup": "infra.example.com", "kind": "MachineTemplate", "name": "m2"},
			"many": [{"ref": {"kind": "Secret", "name": "s", "apiVersion": "v1"}}, {"ref": {"kind": "Secret", "name": "s", "apiVersion": "v1"}}, {"other": 1}],
			"nested": [[], [[{"ref": {"kind": "A", "name": "a"}}, "text"]], {"ref": [{"kind": "B", "name": "b"}]}],
			"local": {"name": "no-kind"}, "nameless": {"kind": "X"}, "text": "x", "bad": {"apiVersion": "a/b/c", "kind": "K", "name": "n"}}}`
	r := event.Resource{Group: "apps", Version: "v1", Resource: "things", Namespaced: true}
	for path, want := range map[string]string{
		Owners: "ReplicaSet.apps /web-1 U controller; Node. /n N", "metadata.ownerReferences": "ReplicaSet.apps /web-1 U controller; Node. /n N",
		"involvedObject":                       "Pod. a/p",
		"spec.template.spec.infrastructureRef": "MachineTemplate.infra.example.com /m",
		"spec.infrastructureRef":               "MachineTemplate.infra.example.com /m2",
		"spec.many.ref":                        "Secret. /s",
		"spec.many[*].ref":                     "Secret. /s",
		"spec.nested.ref":                      "A. /a; B. /b",
		"things:involvedObject":                "Pod. a/p",
		"things.apps:involvedObject":           "Pod. a/p",
		"others:involvedObject":                "",
		"spec.local":                           "", "spec.nameless": "", "spec.text": "", "spec.bad": "", "nonesuch.x": "",
	} {
		got := ""
		refs, all := New([]string{path}, nil).PathsOf(r).Read([]byte(object))
		if !all {
			t.Errorf("%s: not all references are read", path)
		}
		for n, ref := range refs {
			if n > 0 {
				got += "; "
			}
			got += fmt.Sprintf("%s.%s %s/%s", ref.Kind, ref.Group, ref.Namespace, ref.Name)
			if ref.UID != "" {
				got += " " + ref.UID
			}
			if ref.Controller {
				got += " controller"
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// BenchmarkDeepLists compares the read of a reference within many nested lists with one scan of the text.
// A read that scanned the text once for each list would take 9,000 scans.
func BenchmarkDeepLists(b *testing.B) {
	const depth = 9_000
	object := []byte(`{"spec":` + strings.Repeat("[", depth) + `{"ref":{"kind":"Pod","name":"p"}},"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("]", depth) + `}`)
	paths := New([]string{"spec.ref"}, nil).PathsOf(event.Resource{Resource: "things"})
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			s := jsonscan.New(object)
			s.Skip()
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if refs, all := paths.Read(object); len(refs) != 1 || refs[0].Name != "p" || !all {
				b.Fatalf("got %v, all: %t", refs, all)
			}
		}
	})
}
