package informers

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// watches writes a resolution as «deployments.v1.apps», without the final dot for
// the core group.
func watches(r Resolution) string {
	var names []string
	for _, w := range r.Watch {
		names = append(names, strings.TrimSuffix(w.Resource+"."+w.Version+"."+w.Group, "."))
	}
	return strings.Join(names, " ")
}

func TestResolve(t *testing.T) {
	list := strings.Fields
	for name, c := range map[string]struct {
		include, exclude, unlessNamed string
		want                          string
		unmatched                     string
	}{
		"plural":                            {include: "pods", want: "pods.v1"},
		"singular":                          {include: "pod", want: "pods.v1"},
		"short name":                        {include: "po", want: "pods.v1"},
		"Kind":                              {include: "Pod", want: "pods.v1"},
		"upper case, as kubectl takes it":   {include: "PODS", want: "pods.v1"},
		"plural that is its singular":       {include: "fish", want: "fish.v2.example.org"},
		"plural with group":                 {include: "deployments.apps", want: "deployments.v1.apps"},
		"singular with group":               {include: "deployment.apps", want: "deployments.v1.apps"},
		"short name with group":             {include: "deploy.apps", want: "deployments.v1.apps"},
		"Kind with group":                   {include: "Widget.example.com", want: "widgets.v1.example.com"},
		"Kind with version and group":       {include: "Widget.v1alpha1.example.com", want: "widgets.v1alpha1.example.com"},
		"with version and group":            {include: "deployments.v1beta1.apps", want: "deployments.v1beta1.apps"},
		"Kind that is not its singular":     {include: "Parchment.apps", want: "scrolls.v1beta1.apps"},
		"such a Kind without its group":     {include: "Parchment", unmatched: "Parchment"}, // nor does kubectl
		"such a Kind with its version":      {include: "Parchment.v1beta1.apps", want: "scrolls.v1beta1.apps"},
		"core group with version":           {include: "pods.v1.", want: "pods.v1"},
		"beginning of a group":              {include: "widgets.example", want: "widgets.v1.example.com"},
		"another group":                     {include: "widgets.example.org", want: "widgets.v2.example.org"},
		"served in a lesser version only":   {include: "scrolls", want: "scrolls.v1beta1.apps"},
		"ambiguous: the core group first":   {include: "events", want: "events.v1"},
		"ambiguous: the order of discovery": {include: "widgets", want: "widgets.v1.example.com"},
		"ambiguous short name":              {include: "wd", want: "widgets.v1.example.com"},
		"group":                             {include: "*.apps", want: "deployments.v1.apps scrolls.v1beta1.apps"},
		"group, whole name only":            {include: "*.example", unmatched: "*.example"},
		"all": {include: "*", want: "events.v1 pods.v1 secrets.v1 deployments.v1.apps scrolls.v1beta1.apps " +
			"events.v1.events.k8s.io widgets.v1.example.com fish.v2.example.org widgets.v2.example.org"},

		"unknown waits":                {include: "gadgets pods", want: "pods.v1", unmatched: "gadgets"},
		"unknown version waits":        {include: "widgets.v9.example.com", unmatched: "widgets.v9.example.com"},
		"unknown group waits":          {include: "pods.example.net *.example.net", unmatched: "pods.example.net *.example.net"},
		"subresource":                  {include: "pods/log", unmatched: "pods/log"},
		"nothing":                      {},
		"named twice, once by a Kind":  {include: "po Pod", want: "pods.v1"},
		"the first version named wins": {include: "widgets.v1alpha1.example.com *.example.com", want: "widgets.v1alpha1.example.com"},
		"a wildcard before a version":  {include: "*.example.com widgets.v1alpha1.example.com", want: "widgets.v1.example.com"},

		"without list or watch":          {include: "bindings pods.metrics.k8s.io"},
		"excluded":                       {include: "*.apps", exclude: "deploy", want: "scrolls.v1beta1.apps"},
		"excluded group":                 {include: "*.apps pods", exclude: "*.apps", want: "pods.v1"},
		"excluded in another version":    {include: "widgets.v1.example.com", exclude: "widgets.v1alpha1.example.com"},
		"excluded, although named":       {include: "secrets pods", exclude: "secrets", want: "pods.v1"},
		"excluded, but unknown":          {include: "pods", exclude: "gadgets", want: "pods.v1"},
		"quiet under a wildcard":         {include: "*", exclude: "*.apps *.example.com *.example.org", unlessNamed: "secrets events events.events.k8s.io", want: "pods.v1"},
		"quiet under a group's":          {include: "*.events.k8s.io", unlessNamed: "events.events.k8s.io"},
		"quiet, but named":               {include: "secrets", unlessNamed: "secrets events", want: "secrets.v1"},
		"quiet, named before a wildcard": {include: "ev *", exclude: "*.apps *.example.com *.example.org", unlessNamed: "secrets events events.events.k8s.io", want: "events.v1 pods.v1"},
		"quiet, named after a wildcard":  {include: "* ev", exclude: "*.apps *.example.com *.example.org", unlessNamed: "secrets events events.events.k8s.io", want: "events.v1 pods.v1"},
		"quiet and excluded":             {include: "secrets", exclude: "secrets", unlessNamed: "secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Selection{Include: list(c.include), Exclude: list(c.exclude), UnlessNamed: list(c.unlessNamed)}
			r := s.resolve(mustDiscover(t, testCluster()))
			if got := watches(r); got != c.want {
				t.Errorf("watches %q, want %q", got, c.want)
			}
			if got := strings.Join(r.Unmatched, " "); got != c.unmatched {
				t.Errorf("unmatched %q, want %q", got, c.unmatched)
			}
		})
	}
}

func TestResolveKeepsWhatDiscoverySays(t *testing.T) {
	r := Selection{Include: []string{"deploy"}}.resolve(mustDiscover(t, testCluster()))
	want := event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	if len(r.Watch) != 1 || r.Watch[0] != want {
		t.Errorf("got %+v, want %+v", r.Watch, want)
	}
}

func TestResolveSaysWhyAResourceIsLeft(t *testing.T) {
	s := Selection{
		Include: []string{"*", "events", "bindings"}, Exclude: []string{"pods"}, UnlessNamed: []string{"secrets", "events", "events.events.k8s.io"},
	}
	left := s.resolve(mustDiscover(t, testCluster())).Left
	const (
		cannot   = "the API server does not list and watch it"
		wildcard = "not selected by a wildcard; name it to watch it"
	)
	for gr, want := range map[schema.GroupResource]string{
		{Resource: "pods"}:                            "excluded",
		{Resource: "secrets"}:                         wildcard,
		{Group: "events.k8s.io", Resource: "events"}:  wildcard,
		{Resource: "bindings"}:                        cannot,
		{Group: "metrics.k8s.io", Resource: "pods"}:   cannot,
		{Resource: "events"}:                          "", // named
		{Group: "example.com", Resource: "widgets"}:   "", // watched
		{Group: "example.com", Resource: "nonesuch"}:  "",
		{Group: "apps", Resource: "deployments/nope"}: "",
	} {
		if got := left[gr]; got != want {
			t.Errorf("%s: got %q, want %q", gr, got, want)
		}
	}
}

// TestResolveSaysWhoDecided: of several selectors that match, the first that has a
// resource watched is named, or else the last with a reason of its own against it.
func TestResolveSaysWhoDecided(t *testing.T) {
	s := Selection{
		Include:     []string{"*", "ev", "Pod", "widgets.v1alpha1.example.com", "bindings"},
		Exclude:     []string{"nonesuch", "deploy", "*.apps"},
		UnlessNamed: []string{"secrets", "events"},
	}
	r := s.resolve(mustDiscover(t, testCluster()))
	if got := strings.Join(r.UnmatchedExclude, " "); got != "nonesuch" {
		t.Errorf("of what is excluded unmatched are %q", got)
	}
	for gr, want := range map[schema.GroupResource]string{
		{Resource: "pods"}:                            "v1 * [* Pod]  ",
		{Resource: "secrets"}:                         "v1 * [*]  not_named",
		{Resource: "events"}:                          "v1 ev [* ev]  ",
		{Resource: "bindings"}:                        "v1 * [* bindings]  not_watchable",
		{Group: "apps", Resource: "deployments"}:      "v1 * [*] deploy excluded",
		{Group: "apps", Resource: "scrolls"}:          "v1beta1 * [*] *.apps excluded",
		{Group: "example.com", Resource: "widgets"}:   "v1 * [* widgets.v1alpha1.example.com]  ",
		{Group: "example.com", Resource: "nonesuch"}:  "  []  ",
		{Group: "events.k8s.io", Resource: "events"}:  "v1 * [*]  ",
		{Group: "metrics.k8s.io", Resource: "pods"}:   "v1beta1 * [*]  not_watchable",
		{Group: "apps", Resource: "deployments/nope"}: "  []  ",
	} {
		d := r.Decisions[gr]
		got := fmt.Sprintf("%s %s %v %s %s", d.Resource.Version, d.Selector, d.Selectors, d.ExcludedBy, d.Reason)
		if got != want {
			t.Errorf("%s: got %q, want %q", gr, got, want)
		}
	}
	s.Include = []string{"pods"}
	if d := s.resolve(mustDiscover(t, testCluster())).Decisions[schema.GroupResource{Group: "apps", Resource: "deployments"}]; d.Reason != NotSelected || d.ExcludedBy != "deploy" {
		t.Errorf("excluded and not selected: got %+v", d)
	}
}

// TestReplan: what a discovery says of a group that failed starts, stops and moves
// no informer of it.
func TestReplan(t *testing.T) {
	cluster, rescoped := testCluster(), testCluster()
	fish := &rescoped.versions[len(rescoped.versions)-1].APIResources[1]
	fish.Namespaced = false

	for name, c := range map[string]struct {
		before, after        stubDiscovery
		gone, stale, started string
	}{
		"as before":                     {cluster, cluster, "", "", ""},
		"a resource goes":               {cluster, cluster.without("apps/v1beta1"), "scrolls", "", ""},
		"a resource comes":              {cluster.without("apps/v1beta1"), cluster, "", "", "scrolls"},
		"a version goes":                {cluster, cluster.without("example.com/v1"), "", "widgets", "widgets"},
		"a better version comes":        {cluster.without("example.com/v1"), cluster, "", "widgets", "widgets"},
		"a scope changes":               {cluster, rescoped, "", "fish", "fish"},
		"a group fails":                 {cluster, cluster.failing("example.org/v2"), "", "", ""},
		"the preferred version fails":   {cluster, cluster.failing("example.com/v1"), "", "", ""},
		"the only version of one fails": {cluster, cluster.failing("apps/v1beta1"), "", "", ""},
		"the preferred version is back": {cluster.failing("example.com/v1"), cluster, "", "widgets", "widgets"},
		"what is there of a failed group": {cluster.without("example.com/v1").without("example.com/v1alpha1"),
			cluster.failing("example.com/v1"), "", "", "widgets"},
	} {
		t.Run(name, func(t *testing.T) {
			selection := Selection{Include: []string{"widgets.example.com", "fish", "*.apps"}}
			s := &Set{watched: map[schema.GroupResource]*watched{}, follow: newFollow(nil)}
			for _, r := range selection.resolve(mustDiscover(t, c.before)).Watch {
				s.watched[r.GroupResource()] = &watched{resource: r}
			}
			after := mustDiscover(t, c.after)
			gone, stale, started := s.replan(&answer{catalogue: after, resolution: selection.resolve(after)})

			names := func(all []*watched) (s []string) {
				for _, w := range all {
					s = append(s, w.resource.Resource)
				}
				return s
			}
			var starting []string
			for _, r := range started {
				starting = append(starting, r.resource.Resource)
			}
			for what, got := range map[string][2]string{
				"gone":     {strings.Join(names(gone), " "), c.gone},
				"stale":    {strings.Join(names(stale), " "), c.stale},
				"starting": {strings.Join(starting, " "), c.started},
			} {
				if got[0] != got[1] {
					t.Errorf("%s: got %q, want %q", what, got[0], got[1])
				}
			}
			for _, name := range append(names(gone), names(stale)...) {
				for gr := range s.watched {
					if gr.Resource == name {
						t.Errorf("%s is still watched", name)
					}
				}
			}
		})
	}
}
