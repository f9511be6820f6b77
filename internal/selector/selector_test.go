package selector

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Selector{
		"pods":                         {Name: "pods"},
		"Pod":                          {Name: "Pod"},
		"deployments.apps":             {Name: "deployments", Group: "apps", Grouped: true},
		"deployments.v1.apps":          {Name: "deployments", Version: "v1", Group: "apps", Grouped: true},
		"Widget.v1beta1.example.com":   {Name: "Widget", Version: "v1beta1", Group: "example.com", Grouped: true},
		"widgets.vx.example.com":       {Name: "widgets", Group: "vx.example.com", Grouped: true},
		"nodes.v1":                     {Name: "nodes", Group: "v1", Grouped: true},
		"events.core":                  {Name: "events", Grouped: true},
		"pods.v1.core":                 {Name: "pods", Version: "v1", Grouped: true},
		"pods.v1.":                     {Name: "pods", Version: "v1", Grouped: true}, // as kubectl writes it
		"*":                            {Name: wildcard},
		"*.apps":                       {Name: wildcard, Group: "apps", Grouped: true},
		"*.core":                       {Name: wildcard, Grouped: true},
		"*.v1.example.com":             {Name: wildcard, Group: "v1.example.com", Grouped: true}, // a wildcard has no version
		"clusters.cluster.x-k8s.io":    {Name: "clusters", Group: "cluster.x-k8s.io", Grouped: true},
		"clusters.v2.cluster.x-k8s.io": {Name: "clusters", Version: "v2", Group: "cluster.x-k8s.io", Grouped: true},
	} {
		want.text = text
		if got, err := Parse(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                "is empty",
		".":               "is empty",
		"pods.":           "is empty",
		"pods.v1..":       "is empty",
		"pods.v1..apps":   "is empty",
		"*.v1.":           "is empty",
		".apps":           "is empty",
		"pods..apps":      "is empty",
		"pods/log":        "a subresource",
		"po ds":           "a space",
		"pod*":            "part of a name",
		"*.*":             "part of a name",
		"-pods":           `"-pods" is not the name of a resource`,
		"pods.Apps":       `"Apps" is not the name of a group`,
		"pods.v1.a_b.com": `"a_b.com" is not the name of a group`,
	} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) || got != (Selector{}) {
			t.Errorf("%q: got %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestHasGroup(t *testing.T) {
	for text, want := range map[string][3]bool{
		"*":                   {true, true, true},
		"pods":                {true, true, true},
		"*.core":              {true, false, false},
		"*.apps":              {false, true, false},
		"deployments.v1.apps": {false, true, false},
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{s.HasGroup(""), s.HasGroup("apps"), s.HasGroup("v1.apps")}; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// TestResource verifies that Resource resolves ambiguous selectors in kubectl's order. A version and
// the first label of a group can look the same, and a Kind can look like a resource.
func TestResource(t *testing.T) {
	apps, dotted := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "v1.apps", Version: "v2"}
	mapper := restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{
		group(apps, metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Deployment"}),
		group(dotted,
			metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Scale"},
			metav1.APIResource{Name: "collections", SingularName: "collection", Kind: "Set"}),
	})
	for text, want := range map[string]schema.GroupVersionResource{
		"deployments":            apps.WithResource("deployments"),
		"Deployments":            apps.WithResource("deployments"),
		"deployment.apps":        apps.WithResource("deployments"),
		"deployments.v1.apps":    apps.WithResource("deployments"), // not the group v1.apps
		"deployments.v2.v1.apps": dotted.WithResource("deployments"),
		"collections.v1.apps":    dotted.WithResource("collections"), // the group v1.apps, because no version v1 of the group apps has this resource
		"Set":                    {},                                 // a Kind without a group belongs to the core group
		"Set.v1.apps":            dotted.WithResource("collections"),
		"Set.v2.v1.apps":         dotted.WithResource("collections"),
		"set":                    {},
		"deployments.v9.apps":    {},
		"*":                      {},
		"*.apps":                 {},
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := s.Resource(mapper); got != want || ok != (want != schema.GroupVersionResource{}) {
			t.Errorf("%s: got %v, %v, want %v", text, got, ok, want)
		}
	}
}

func group(gv schema.GroupVersion, resources ...metav1.APIResource) *restmapper.APIGroupResources {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return &restmapper.APIGroupResources{
		Group:              metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v},
		VersionedResources: map[string][]metav1.APIResource{gv.Version: resources},
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"pods", "*.apps", "*", "nonsense..x", "a.b.c", ".", "*.", "pods/status", "Pod.v1."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		for part := range strings.SplitSeq(strings.TrimSuffix(text, s.Version+"."), ".") {
			if part == "" && s.Version == "" || part != wildcard && strings.ContainsAny(part, "*/, \t\n") {
				t.Errorf("Parse accepts %q", text)
			}
		}
		if s.Name == "" || s.Group != "" && !s.Grouped || s.IsWildcard() && s.Version != "" {
			t.Errorf("%q: %+v", text, s)
		}
	})
}
