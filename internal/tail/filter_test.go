package tail

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
)

func selectors(t *testing.T, list ...string) []Selector {
	t.Helper()
	var all []Selector
	for _, s := range list {
		parsed, err := ParseSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parsed)
	}
	return all
}

var (
	events1 = event.Resource{Version: "v1", Resource: "events", Kind: "Event", Namespaced: true}
	events2 = event.Resource{Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true}
	odd     = event.Resource{Group: "example.com", Version: "v1", Resource: "geese", Kind: "Goose", Namespaced: true}
	snap    = event.Resource{Group: "example.com", Version: "v1", Resource: "snapshot", Kind: "Snapshot", Namespaced: true}
)

// zoo returns named events of every kind that a filter distinguishes.
func zoo(t *testing.T) map[string]Event {
	all := map[string]Event{
		"role":              change(t, event.Created, roles, "", "r", "1"),
		"pod elsewhere":     change(t, event.Created, pods, "kube-system", "p", "1"),
		"pod of staging":    change(t, event.Created, pods, "default", "p", "1").of("staging.eu"),
		"pods marker":       marker(t, event.SnapshotCompleted, pods, 1),
		"deployment marker": marker(t, event.SnapshotCompleted, deployments, 1),
		"goose marker":      marker(t, event.SnapshotStarted, odd, 1),
		"snapshot marker":   marker(t, event.SnapshotStarted, snap, 1),
		"claim":             clusterClaimed(t, ""),
	}
	for name, r := range map[string]event.Resource{"pod": pods, "deployment": deployments, "event": events1, "new event": events2, "goose": odd, "snapshot": snap} {
		all[name] = change(t, event.Created, r, "default", "x", "1")
	}
	return all
}

// matches implements the subject matching of NATS.
func matches(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range f {
		switch {
		case token == ">":
			return i < len(s)
		case i >= len(s) || token != "*" && token != s[i]:
			return false
		}
	}
	return len(f) == len(s)
}

// TestFilterOfAWriter verifies filters for the markers of a writer and of a cluster, which have no
// resource and no namespace.
func TestFilterOfAWriter(t *testing.T) {
	every, err := ParseSelector("*")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Event{writerStarted(t, "w"), clusterClaimed(t, "")} {
		for _, f := range []Filter{{}, {Clusters: []string{"prod"}}, {Clusters: []string{"other", "prod"}}} {
			if !f.Match(e) {
				t.Errorf("%+v leaves it out", f)
			}
		}
		for _, f := range []Filter{{Clusters: []string{"other"}}, {Resources: []Selector{every}}, {Namespaces: []string{""}}} {
			if f.Match(e) {
				t.Errorf("%+v takes it", f)
			}
		}
	}
}

func TestFilter(t *testing.T) {
	everything := []string{"claim", "deployment", "deployment marker", "event", "goose", "goose marker", "new event", "pod", "pod elsewhere", "pod of staging", "pods marker", "role", "snapshot", "snapshot marker"}
	for _, tc := range []struct {
		resources, namespaces, cluster string
		want                           []string
		subjects                       []string
	}{
		{"", "", "", everything, []string{"k.>"}},
		{"*", "", "", everything[1:], []string{"k.*.*.*.*.*"}},
		{"", "", "staging.eu", []string{"pod of staging"}, []string{"k.staging=2Eeu.>"}},
		{"", "", "staging.eu,prod,staging.eu", everything, []string{"k.staging=2Eeu.>", "k.prod.>"}},
		{"geese", "", "staging.eu,prod", []string{"goose", "goose marker"}, nil},
		{"pods.core", "default", "staging.eu,prod", []string{"pod", "pod of staging"},
			[]string{"k.staging=2Eeu.core.pods.default.*", "k.staging=2Eeu.core.podses.default.*", "k.prod.core.pods.default.*", "k.prod.core.podses.default.*"}},
		{
			"pods", "", "", []string{"pod", "pod elsewhere", "pod of staging", "pods marker"},
			[]string{"k.*.*.pods.*.*", "k.*._control.snapshot.*.pods", "k.*.*.podses.*.*", "k.*._control.snapshot.*.podses"},
		},
		{"pods", "default", "prod", []string{"pod"}, []string{"k.prod.*.pods.default.*", "k.prod.*.podses.default.*"}},
		{"po,deploy", "default", "prod", []string{"pod", "deployment"}, nil},
		{"pod", "", "prod", []string{"pod", "pod elsewhere", "pods marker"}, nil},
		{"Pod", "", "prod", []string{"pod", "pod elsewhere", "pods marker"}, []string{"k.prod.*.*.*.*"}},
		{"Goose", "", "", []string{"goose"}, []string{"k.*.*.*.*.*"}}, // a marker has no kind, and "geese" is not the guessed plural
		{"goose", "", "", nil, nil},
		{"geese", "", "", []string{"goose", "goose marker"}, nil},
		{"Goose.example.com", "default", "", []string{"goose"}, []string{"k.*.example_com.*.default.*"}},
		{"deployments.apps", "", "", []string{"deployment", "deployment marker"}, nil},
		{"deployments.v1.apps", "", "", []string{"deployment", "deployment marker"}, nil},
		{"deployments.v1beta1.apps", "default", "", []string{"deployment"}, []string{
			"k.*.apps.deployments.default.*", "k.*.apps.deploymentses.default.*", "k.*.v1beta1_apps.deployments.default.*", "k.*.v1beta1_apps.deploymentses.default.*",
		}},
		{"deployments.example.com", "", "", nil, nil},
		{"pods.core", "default", "", []string{"pod", "pod of staging"}, nil},
		{"events", "", "", []string{"event", "new event"}, nil},
		{"events.core", "", "", []string{"event"}, nil},
		{"events.events.k8s.io", "", "", []string{"new event"}, nil},
		{"*.apps", "", "", []string{"deployment", "deployment marker"}, []string{"k.*.apps.*.*.*", "k.*._control.snapshot.apps.*"}},
		{"", "default", "", []string{"deployment", "event", "goose", "new event", "pod", "pod of staging", "snapshot"}, []string{"k.*.*.*.default.*"}},
		{"", "default,kube-system", "prod", []string{"deployment", "event", "goose", "new event", "pod", "pod elsewhere", "snapshot"}, nil},
		{"clusterroles", "default", "", nil, nil},
		{"clusterroles", "", "", []string{"role"}, nil},
		// These subjects overlap in part.
		{"*.apps,deployments", "default", "", []string{"deployment"}, []string{"k.*.*.*.default.*"}},
		{"deployments,deployments.apps", "", "", []string{"deployment", "deployment marker"}, nil},
		{"snapshot", "", "", []string{"snapshot", "snapshot marker"}, nil},
	} {
		t.Run(fmt.Sprintf("%s in %s of %s", tc.resources, tc.namespaces, tc.cluster), func(t *testing.T) {
			var f Filter
			if tc.cluster != "" {
				f.Clusters = strings.Split(tc.cluster, ",")
			}
			if tc.resources != "" {
				f.Resources = selectors(t, strings.Split(tc.resources, ",")...)
			}
			if tc.namespaces != "" {
				f.Namespaces = strings.Split(tc.namespaces, ",")
			}
			subjects := f.Subjects("k")
			var got []string
			for name, e := range zoo(t) {
				if !f.Match(e) {
					continue
				}
				got = append(got, name)
				if !slices.ContainsFunc(subjects, func(s string) bool { return matches(s, subject.Message("k", e.Cluster, e.Message)) }) {
					t.Errorf("%s is under none of %q", subject.Message("k", e.Cluster, e.Message), subjects)
				}
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if tc.subjects != nil && !slices.Equal(subjects, tc.subjects) {
				t.Errorf("subjects %q, want %q", subjects, tc.subjects)
			}
			for i, a := range subjects {
				for _, b := range subjects[i+1:] {
					if overlap(strings.Split(a, "."), strings.Split(b, ".")) {
						t.Errorf("%q overlaps %q", a, b)
					}
				}
			}
		})
	}
}

// TestFilterNames verifies that names select objects, and that they select markers only if Markers is
// set.
func TestFilterNames(t *testing.T) {
	for _, tc := range []struct {
		filter   Filter
		want     []string
		subjects []string
	}{
		{Filter{Names: []string{"p", "r"}}, []string{"pod elsewhere", "pod of staging", "role"}, []string{"k.*.*.*.*.p", "k.*.*.*.*.r"}},
		{Filter{Names: []string{"*"}}, nil, nil},
		{
			Filter{Resources: selectors(t, "pods.core"), Namespaces: []string{"default", ""}, Names: []string{"p"}, Markers: true},
			[]string{"pod of staging", "pods marker"},
			[]string{"k.*.core.pods.default.p", "k.*.core.pods._.p", "k.*._control.snapshot.core.pods",
				"k.*.core.podses.default.p", "k.*.core.podses._.p", "k.*._control.snapshot.core.podses"},
		},
		{Filter{Resources: selectors(t, "pods"), Namespaces: []string{"kube-system"}, Markers: true}, []string{"pod elsewhere", "pods marker"}, nil},
		{Filter{Namespaces: []string{"kube-system"}, Markers: true}, []string{
			"claim", "deployment marker", "goose marker", "pod elsewhere", "pods marker", "snapshot marker",
		}, nil},
	} {
		var got []string
		subjects := tc.filter.Subjects("k")
		for name, e := range zoo(t) {
			if !tc.filter.Match(e) {
				continue
			}
			got = append(got, name)
			if !slices.ContainsFunc(subjects, func(s string) bool { return matches(s, subject.Message("k", e.Cluster, e.Message)) }) {
				t.Errorf("%s is under none of %q", subject.Message("k", e.Cluster, e.Message), subjects)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%+v: got %q, want %q", tc.filter, got, tc.want)
		}
		if tc.subjects != nil && !slices.Equal(subjects, tc.subjects) {
			t.Errorf("%+v: subjects %q, want %q", tc.filter, subjects, tc.subjects)
		}
	}
	many := Filter{Resources: selectors(t, "pods.core"), Namespaces: []string{"default"}}
	for i := range maxSubjects {
		many.Names = append(many.Names, fmt.Sprint("p", i))
	}
	want := []string{"k.*.core.pods.default.*", "k.*.core.podses.default.*"}
	if got := many.Subjects("k"); !slices.Equal(got, want) {
		t.Errorf("of many names: got %q, want %q", got, want)
	}
}

// TestFilterOfAGroupLikeAVersion verifies that geese.v2.example.com selects geese in the group
// v2.example.com, whose name tail and get print in this form, and in the group example.com, because v2
// can also be a version.
func TestFilterOfAGroupLikeAVersion(t *testing.T) {
	f := Filter{Resources: selectors(t, "geese.v2.example.com")}
	for _, group := range []string{"v2.example.com", "example.com"} {
		r := odd
		r.Group = group
		for _, e := range []Event{change(t, event.Created, r, "default", "x", "1"), marker(t, event.SnapshotStarted, r, 1)} {
			on := subject.Message("k", "prod", e.Message)
			isDelivered := slices.ContainsFunc(f.Subjects("k"), func(filter string) bool { return matches(filter, on) })
			if !f.Match(e) || !isDelivered {
				t.Errorf("%s: matches %t, delivered %t", on, f.Match(e), isDelivered)
			}
		}
	}
}

// TestFilterTooMany verifies that a filter with more than maxSubjects subjects falls back to wider
// ones.
func TestFilterTooMany(t *testing.T) {
	var f Filter
	for i := range maxSubjects + 1 {
		f.Namespaces = append(f.Namespaces, fmt.Sprintf("ns-%d", i))
	}
	if got := f.Subjects("k"); !slices.Equal(got, []string{"k.>"}) {
		t.Errorf("got %q", got)
	}
	f.Clusters = []string{"a", "b"}
	if got := f.Subjects("k"); !slices.Equal(got, []string{"k.a.>", "k.b.>"}) {
		t.Errorf("of two clusters: got %q", got)
	}
	f = Filter{}
	for i := range maxSubjects + 1 {
		f.Clusters = append(f.Clusters, fmt.Sprintf("c-%d", i))
	}
	if got := f.Subjects("k"); !slices.Equal(got, []string{"k.>"}) {
		t.Errorf("of many clusters: got %q", got)
	}
}

func TestParseSelectorRefuses(t *testing.T) {
	for _, s := range []string{"", ".", "pods.", ".apps", "pods/log", "po ds", "pod*", "*.*", "pods..apps", "pods.Apps", "*.v1."} {
		if _, err := ParseSelector(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
	for _, s := range []string{"", "*", "Default", "a/b", "a.b", strings.Repeat("a", 64)} {
		if _, err := ParseNamespace(s); err == nil {
			t.Errorf("namespace %q was taken", s)
		}
	}
	for _, s := range []string{"", "*", "a/b", "-a", "a b"} {
		if _, err := ParseCluster(s); err == nil {
			t.Errorf("cluster %q was taken", s)
		}
	}
}

// TestGuessedResource verifies the resource that trace derives from the command line without an API
// server.
func TestGuessedResource(t *testing.T) {
	for text, want := range map[string]string{
		"pod": "pods", "pods": "pods", "po": "pods", "Pod": "pods", "pods.core": "pods", "deploy.apps": "deployments.apps", "deployments.v1.apps": "deployments.apps",
		"Deployment.apps": "deployments.apps", "ingress.networking.k8s.io": "ingresses.networking.k8s.io", "Widget.example.com": "widgets.example.com", "ep": "endpoints", "endpoints": "endpoints",
	} {
		s, err := ParseSelector(text)
		if got := s.GroupResource().String(); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}
