package explain

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/test/lab/golden"
)

// TestPrintHostile verifies that an aggregated API server can't control the terminal with what it
// serves. Before the fix, the table didn't escape kinds and versions.
func TestPrintHostile(t *testing.T) {
	hostile := Explained{Name: "a\x1b[2J", Version: "v1\x1b[2J", Versions: []string{"\x1b[2J"}, Kind: "\x1b[2J", Watched: Everywhere}
	for name, write := range map[string]func(Explanation, io.Writer) error{"table": Explanation.WriteTable, "answers": Explanation.WriteAnswers} {
		var b bytes.Buffer
		if err := write(Explanation{Resources: []Explained{hostile}}, &b); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("something controls the terminal in the %s: %q", name, b.String())
		}
	}
}

// explained has one resource of each kind of result, and texts with control characters.
func explained() Explanation {
	pods := Explained{
		Name: "pods", Version: "v1", Versions: []string{"v1"}, Kind: "Pod", Namespaced: true, Watched: Partly, Reason: NotAllowed,
		Detail: "forbidden: list, watch, get in the namespace team-b", Selector: "po", Selectors: []string{"po", "*"},
		Scope: NamespacesScope, Namespaces: []string{"team-a"}, ScopeDetail: "one watch for each namespace, because up to 10 are watched one by one",
		Forbidden: []Refusal{{Namespace: "team-b", Verbs: []string{"list", "watch", "get"}, Reason: "RBAC: \x1b[31mno\u202e"}},
	}
	nodes := Explained{
		Name: "nodes", Version: "v1", Versions: []string{"v1"}, Kind: "Node", Watched: Everywhere,
		Selector: "*", Selectors: []string{"*"}, Scope: ClusterScope, Namespaces: []string{}, Forbidden: []Refusal{},
	}
	widgets := Explained{
		Name: "widgets.example.com", Group: "example.com", Version: "v1", Versions: []string{"v1", "v1alpha1"}, Kind: "Widget", Namespaced: true,
		Watched: Nowhere, Reason: discovery.Excluded, Detail: "excluded by *.example.com", Selector: "*", Selectors: []string{"*"},
		ExcludedBy: "*.example.com", Namespaces: []string{}, Forbidden: []Refusal{}, GroupError: "no back end\u009b2J",
	}
	return Explanation{
		Resources: []Explained{nodes, pods, widgets},
		NotServed: []NotServed{{Asked: "gadgets", Detail: "the cluster does not serve it"}},
		Unmatched: []string{"gadgets"}, UnmatchedExclude: []string{"nonesuch"},
		FailingGroups: []FailingGroup{{Group: "", Error: "not shown"}, {Group: "example.com", Error: "no back end\u009b2J"}},
		Namespaces:    ExplainedNamespaces{Selected: strings.Split("a b c d e f g h i j k l", " "), NotFound: []string{"k"}},
		LabelSelector: "app=web", Warnings: []string{"not ready\r"},
	}
}

func TestPrint(t *testing.T) {
	for name, write := range map[string]func(Explanation, io.Writer) error{
		"table.txt": Explanation.WriteTable, "answers.txt": Explanation.WriteAnswers, "resources.json": Explanation.WriteJSON,
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(explained(), &b); err != nil {
				t.Fatal(err)
			}
			if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
				t.Errorf("something controls the terminal: %q", b.String())
			}
			golden.Check(t, name, b.String())
		})
	}
	var b bytes.Buffer
	var back struct {
		Resources []struct{ Resource, Watched, Reason, ExcludedBy string }
	}
	if err := explained().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back.Resources) != 3 || back.Resources[2].ExcludedBy != "*.example.com" {
		t.Errorf("got %+v, error %v", back, err)
	}
}
