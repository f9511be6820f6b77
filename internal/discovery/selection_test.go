package discovery

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// watches formats a resolution as "deployments.v1.apps", without the final dot for
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
		"such a Kind without its group":     {include: "Parchment", unmatched: "Parchment"}, // as in kubectl
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
			r := s.Resolve(mustDiscover(t, discoverytest.Cluster()))
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
	r := Selection{Include: []string{"deploy"}}.Resolve(mustDiscover(t, discoverytest.Cluster()))
	want := event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	if len(r.Watch) != 1 || r.Watch[0] != want {
		t.Errorf("got %+v, want %+v", r.Watch, want)
	}
}

func TestResolveSaysWhyAResourceIsLeft(t *testing.T) {
	s := Selection{
		Include: []string{"*", "events", "bindings"}, Exclude: []string{"pods"}, UnlessNamed: []string{"secrets", "events", "events.events.k8s.io"},
	}
	left := s.Resolve(mustDiscover(t, discoverytest.Cluster())).Left
	const (
		cannot   = "the API server does not support list and watch"
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

// TestResolveSaysWhoDecided verifies which of several matching selectors a decision names: the
// first one for which the resource is watched. If the resource is not watched, the decision names
// the last selector that changed the reason.
func TestResolveSaysWhoDecided(t *testing.T) {
	s := Selection{
		Include:     []string{"*", "ev", "Pod", "widgets.v1alpha1.example.com", "bindings"},
		Exclude:     []string{"nonesuch", "deploy", "*.apps"},
		UnlessNamed: []string{"secrets", "events"},
	}
	r := s.Resolve(mustDiscover(t, discoverytest.Cluster()))
	if got := strings.Join(r.UnmatchedExclude, " "); got != "nonesuch" {
		t.Errorf("unmatched exclusions are %q, want nonesuch", got)
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
	if d := s.Resolve(mustDiscover(t, discoverytest.Cluster())).Decisions[schema.GroupResource{Group: "apps", Resource: "deployments"}]; d.Reason != NotSelected || d.ExcludedBy != "deploy" {
		t.Errorf("excluded and not selected: got %+v", d)
	}
}

// TestFollowable verifies that references do not select resources that are excluded or must be
// named.
func TestFollowable(t *testing.T) {
	c := mustDiscover(t, discoverytest.Cluster())
	all := Selection{}.Followable(c)
	known := Selection{Exclude: []string{"deployments.apps"}, UnlessNamed: []string{"secrets"}}.Followable(c)
	for gk, want := range map[schema.GroupKind]bool{
		{Kind: "Pod"}: true, {Kind: "Secret"}: false, {Group: "apps", Kind: "Deployment"}: false,
	} {
		if _, ok := all[gk]; !ok {
			t.Errorf("%s is not known", gk)
		}
		if _, ok := known[gk]; ok != want {
			t.Errorf("%s: %v, want %v", gk, ok, want)
		}
	}
}
