package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// asked returns a configuration with clients of a fake API server. The server serves the resources of
// stub, has the listed namespaces ("a:x" is the namespace a with the label team=x), and grants the
// permissions that access grants.
func asked(stub discoverytest.Discovery, namespaces []string, access controlplanetest.Reviews) (Config, *fake.FakeDynamicClient) {
	var objects []runtime.Object
	for _, n := range namespaces {
		name, team, _ := strings.Cut(n, ":")
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		o.SetName(name)
		o.SetLabels(map[string]string{"team": team})
		objects = append(objects, o)
	}
	kinds := map[schema.GroupVersionResource]string{
		discovery.NamespaceResource: "NamespaceList", discovery.DefinitionResource: "CustomResourceDefinitionList",
	}
	for _, list := range stub.Versions {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		for _, r := range list.APIResources {
			kinds[gv.WithResource(r.Name)] = r.Kind + "List"
		}
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	return Config{Discovery: stub, Dynamic: client, Reviews: access}, client
}

func anything(authorizationv1.ResourceAttributes) (bool, error) { return true, nil }

// told formats each resource as "pods=yes" or "pods=no:reason".
func told(x Explanation) string {
	var words []string
	for _, r := range x.Resources {
		word := r.Name + "=" + string(r.Watched)
		if r.Reason != "" {
			word += ":" + string(r.Reason)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestExplainSelection(t *testing.T) {
	selection := discovery.Selection{
		Include: []string{"po", "*", "gadgets", "bindings"}, Exclude: []string{"deploy", "*.example.com", "nonesuch"},
		UnlessNamed: []string{"secrets", "events", "events.events.k8s.io"},
	}
	const whole = "bindings=no:not_watchable events=no:not_named pods=yes secrets=no:not_named deployments.apps=no:excluded scrolls.apps=yes " +
		"events.events.k8s.io=no:not_named widgets.example.com=no:excluded fish.example.org=yes widgets.example.org=yes pods.metrics.k8s.io=no:not_watchable"
	for name, c := range map[string]struct {
		selection discovery.Selection
		question  Question
		want      string
	}{
		"whatever a selector matches": {selection, Question{}, whole},
		"one, by its short name":      {selection, Question{Only: []string{"deploy.apps"}}, "deployments.apps=no:excluded"},
		"one, by its Kind":            {selection, Question{Only: []string{"Fish.example.org"}}, "fish.example.org=yes"},
		"a group":                     {selection, Question{Only: []string{"*.apps"}}, "deployments.apps=no:excluded scrolls.apps=yes"},
		"few are selected":            {discovery.Selection{Include: []string{"pods"}}, Question{}, "pods=yes"},
		"few are excluded":            {discovery.Selection{Include: []string{"pods"}, Exclude: []string{"secrets"}}, Question{}, "pods=yes secrets=no:not_selected"},
		"one that is not selected":    {discovery.Selection{Include: []string{"pods"}}, Question{Only: []string{"secrets"}}, "secrets=no:not_selected"},
		"nothing is selected, all are asked for": {discovery.Selection{}, Question{All: true}, "bindings=no:not_selected events=no:not_selected pods=no:not_selected " +
			"secrets=no:not_selected deployments.apps=no:not_selected scrolls.apps=no:not_selected events.events.k8s.io=no:not_selected widgets.example.com=no:not_selected " +
			"fish.example.org=no:not_selected widgets.example.org=no:not_selected pods.metrics.k8s.io=no:not_selected"},
	} {
		t.Run(name, func(t *testing.T) {
			config, _ := asked(discoverytest.Cluster(), nil, anything)
			config.Selection = c.selection
			x, err := Explain(t.Context(), config, c.question)
			if got := told(x); err != nil || got != c.want {
				t.Errorf("got %s, error %v\nwant %s", got, err, c.want)
			}
			if slices.Contains(c.selection.Include, "gadgets") && (!slices.Equal(x.Unmatched, []string{"gadgets"}) || !slices.Equal(x.UnmatchedExclude, []string{"nonesuch"})) {
				t.Errorf("unmatched are %q and %q", x.Unmatched, x.UnmatchedExclude)
			}
		})
	}
}

func TestExplainDetails(t *testing.T) {
	config, _ := asked(discoverytest.Cluster().Failing("example.com/v1"), nil, anything)
	config.Selection = discovery.Selection{Include: []string{"widgets.v1alpha1.example.com", "*"}, Exclude: []string{"deploy"}}
	x, err := Explain(t.Context(), config, Question{})
	if err != nil {
		t.Fatal(err)
	}
	if len(x.FailingGroups) != 1 || x.FailingGroups[0].Group != "example.com" || x.FailingGroups[0].Error == "" {
		t.Errorf("failing are %+v", x.FailingGroups)
	}
	for _, r := range x.Resources {
		var got, want string
		switch r.Name {
		case "widgets.example.com":
			got = fmt.Sprint(r.Version, r.Versions, r.Selector, r.Selectors, r.GroupError == x.FailingGroups[0].Error)
			want = "v1alpha1[v1alpha1]widgets.v1alpha1.example.com[widgets.v1alpha1.example.com *] true"
		case "deployments.apps":
			got = fmt.Sprint(r.Version, r.Versions, r.Selector, r.ExcludedBy, " ", r.Detail, r.GroupError)
			want = "v1[v1 v1beta1]*deploy excluded by deploy"
		case "bindings":
			got, want = r.Detail, "the API server does not support list and watch, only create"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", r.Name, got, want)
		}
	}
}

// TestExplainScope verifies the scope of the watches and the missing permissions. The scope comes from
// the code that the informers use.
func TestExplainScope(t *testing.T) {
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("n%02d:x", i))
		}
		return all
	}
	in := func(namespaces ...string) controlplanetest.Reviews {
		return func(a authorizationv1.ResourceAttributes) (bool, error) {
			return slices.Contains(namespaces, a.Namespace) && a.Resource == "pods", nil
		}
	}
	but := func(verb string) controlplanetest.Reviews {
		return func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Verb != verb, nil }
	}
	team := labelSelector(t, "team=x")
	for name, c := range map[string]struct {
		namespaces []string
		selection  discovery.NamespaceSelection
		access     controlplanetest.Reviews
		want       string // pods=…, scope, namespaces
		detail     string
		scope      string // in ScopeDetail
	}{
		"all":                       {nil, discovery.NamespaceSelection{}, anything, "pods=yes all_namespaces []", "", "because all namespaces are selected"},
		"no watch":                  {nil, discovery.NamespaceSelection{}, but("watch"), "pods=no:forbidden all_namespaces []", "forbidden: watch in all namespaces", "all namespaces are selected"},
		"no get":                    {nil, discovery.NamespaceSelection{}, but("get"), "pods=yes all_namespaces []", "forbidden: get in all namespaces, so missed deletes cannot be confirmed", ""},
		"nothing":                   {nil, discovery.NamespaceSelection{}, in(), "pods=no:forbidden all_namespaces []", "forbidden: list, watch, get in all namespaces", ""},
		"a list":                    {nil, discovery.NamespaceSelection{Include: []string{"a", "b"}}, anything, "pods=yes namespaces [a b]", "", "up to 10 are watched one by one"},
		"a list, in part":           {nil, discovery.NamespaceSelection{Include: []string{"a", "b", "c"}}, in("a"), "pods=partly:forbidden namespaces [a]", "forbidden: list, watch, get in the namespaces b, c", ""},
		"a list, one too many":      {nil, discovery.NamespaceSelection{Include: names(11)}, anything, "pods=yes all_namespaces []", "", "because 11 are selected and only up to 10 are watched one by one"},
		"a longer list, in part":    {nil, discovery.NamespaceSelection{Include: append(names(10), "a")}, in("a"), "pods=partly:forbidden namespaces [a]", "forbidden: list, watch, get in the namespaces n00:x, n01", "because access to all namespaces is denied"},
		"by labels":                 {[]string{"a:x", "b:y", "c:x"}, discovery.NamespaceSelection{Selector: team}, anything, "pods=yes namespaces [a c]", "", "one by one"},
		"by labels, none now":       {[]string{"b:y"}, discovery.NamespaceSelection{Selector: team}, anything, "pods=no:no_namespaces namespaces []", "no namespace is selected at present", ""},
		"by labels, but some":       {[]string{"a:x", "c:x"}, discovery.NamespaceSelection{Selector: team, Exclude: []string{"a"}}, anything, "pods=yes namespaces [c]", "", ""},
		"by labels, many":           {names(11), discovery.NamespaceSelection{Selector: team}, anything, "pods=yes all_namespaces []", "", "11 are selected"},
		"all but some":              {[]string{"a:", "b:"}, discovery.NamespaceSelection{Exclude: []string{"b"}}, anything, "pods=yes all_namespaces []", "", "all but the excluded ones are selected"},
		"all but some, not at once": {[]string{"a:", "b:"}, discovery.NamespaceSelection{Exclude: []string{"b"}}, in("a", "b"), "pods=yes namespaces [a]", "", "because access to all namespaces is denied"},
	} {
		t.Run(name, func(t *testing.T) {
			config, _ := asked(discoverytest.Cluster(), c.namespaces, c.access)
			config.Selection, config.Namespaces = discovery.Selection{Include: []string{"pods"}}, c.selection
			x, err := Explain(t.Context(), config, Question{})
			if err != nil || len(x.Resources) != 1 {
				t.Fatalf("got %+v, error %v", x, err)
			}
			r := x.Resources[0]
			if got := fmt.Sprint(told(x), " ", r.Scope, " ", r.Namespaces); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !strings.HasPrefix(r.Detail, c.detail) || c.detail == "" && r.Detail != "" || !strings.Contains(r.ScopeDetail, c.scope) {
				t.Errorf("got %q and %q, want %q and %q", r.Detail, r.ScopeDetail, c.detail, c.scope)
			}
		})
	}
}

// TestExplainFollowing verifies how Explain describes resources that no selector selects, but whose
// objects can be watched because other objects refer to them.
func TestExplainFollowing(t *testing.T) {
	config, _ := asked(discoverytest.Cluster(), nil, anything)
	config.Selection = discovery.Selection{Include: []string{"pods"}, Exclude: []string{"deploy"}, UnlessNamed: []string{"secrets"}}
	config.Follow = []string{"ownerReferences"}
	x, err := Explain(t.Context(), config, Question{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range x.Resources {
		want := map[string]string{
			"scrolls.apps": "only objects that selected objects refer to are watched", "deployments.apps": "not selected; also excluded by deploy",
			"secrets": "not selected", "bindings": "not selected",
		}[r.Name]
		if want != "" && r.Detail != want {
			t.Errorf("%s: got %q, want %q", r.Name, r.Detail, want)
		}
	}
}

func labelSelector(t *testing.T, s string) labels.Selector {
	t.Helper()
	l, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
