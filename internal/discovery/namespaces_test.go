package discovery

import (
	"errors"
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestNamespaceSelection(t *testing.T) {
	known := map[string]map[string]string{"a": {"team": "x"}, "b": {"team": "y"}, "c": nil}
	for name, c := range map[string]struct {
		selection NamespaceSelection
		want      []string // the selected ones of a, b, c and d; d does not exist
		list      []string // result of Selected; nil if unknown
	}{
		"all":                   {NamespaceSelection{}, []string{"a", "b", "c", "d"}, nil},
		"a list":                {NamespaceSelection{Include: []string{"d", "a"}}, []string{"a", "d"}, []string{"a", "d"}},
		"all but some":          {NamespaceSelection{Exclude: []string{"b"}}, []string{"a", "c", "d"}, []string{"a", "c"}},
		"a list but some":       {NamespaceSelection{Include: []string{"a", "b"}, Exclude: []string{"b"}}, []string{"a"}, []string{"a"}},
		"labels":                {NamespaceSelection{Selector: labelSelector(t, "team")}, []string{"a", "b"}, []string{"a", "b"}},
		"labels that are not":   {NamespaceSelection{Selector: labelSelector(t, "!team")}, []string{"c"}, []string{"c"}},
		"labels, but some":      {NamespaceSelection{Selector: labelSelector(t, "team"), Exclude: []string{"a"}}, []string{"b"}, []string{"b"}},
		"labels within a list":  {NamespaceSelection{Selector: labelSelector(t, "team=x"), Include: []string{"a", "b"}}, []string{"a"}, []string{"a"}},
		"labels that none have": {NamespaceSelection{Selector: labelSelector(t, "none")}, nil, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			n := NewNamespaces(c.selection)
			if _, ok := n.Selected(); ok != (len(c.selection.Include) > 0 && c.selection.Selector == nil) {
				t.Errorf("the selected namespaces are known before the first list: %v", ok)
			}
			if err := n.Ready(); (err == nil) != (c.selection.Selector == nil) {
				t.Errorf("Ready before the first list: %v", err)
			}
			if !n.Exists("d") {
				t.Error("before the first list, namespace d does not count as existing")
			}
			for namespace, l := range known {
				n.Put(namespace, l)
			}
			n.Synced()
			var got []string
			for _, namespace := range []string{"a", "b", "c", "d"} {
				if n.Selects(namespace) {
					got = append(got, namespace)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("selects %q, want %q", got, c.want)
			}
			if !n.Selects("") {
				t.Error("cluster-scoped objects are not selected")
			}
			list, ok := n.Selected()
			if ok != (c.list != nil) || ok && !slices.Equal(list, c.list) {
				t.Errorf("lists %q, %v; want %q", list, ok, c.list)
			}
			if n.Exists("d") == n.NeedsWatch() {
				t.Errorf("needs a watch: %v, but d exists: %v", n.NeedsWatch(), n.Exists("d"))
			}
		})
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

// TestMissingNamespaces verifies that named namespaces that don't exist are reported with a similar
// name once they have been checked.
func TestMissingNamespaces(t *testing.T) {
	include := NamespaceSelection{Include: []string{"defaultx", "shop"}}
	labeled := NamespaceSelection{Include: []string{"defaultx", "shop"}, Selector: labelSelector(t, "team"), Exclude: []string{"kube-systm", "elsewhere"}}
	none := map[string]string{}
	for name, c := range map[string]struct {
		selection         NamespaceSelection
		look              func(*Namespaces)
		missing, excluded map[string]string
		looked, none      bool
	}{
		"all":                    {NamespaceSelection{}, func(*Namespaces) {}, none, none, true, false},
		"a list, before a look":  {include, func(*Namespaces) {}, none, none, false, false},
		"a list":                 {include, func(n *Namespaces) { n.noteMissing(map[string]string{"defaultx": "default"}) }, map[string]string{"defaultx": "default"}, none, true, false},
		"a list, all there":      {include, func(n *Namespaces) { n.noteMissing(none) }, none, none, true, false},
		"exclusion, unreadable":  {NamespaceSelection{Exclude: []string{"kube-systm"}}, func(n *Namespaces) { _ = n.Fail(forbidden()) }, none, none, true, false},
		"exclusion, not listed":  {NamespaceSelection{Exclude: []string{"kube-systm"}}, func(n *Namespaces) { _ = n.Fail(errors.New("away")) }, none, none, false, false},
		"labels, unreadable":     {labeled, func(n *Namespaces) { _ = n.Fail(forbidden()) }, none, none, false, false},
		"labels, before a watch": {labeled, func(n *Namespaces) { n.Put("default", nil) }, none, none, false, false},
		"labels that none has": {labeled, func(n *Namespaces) { put(n, "default", "kube-system", "shop") },
			map[string]string{"defaultx": "default"}, map[string]string{"kube-systm": "kube-system", "elsewhere": ""}, true, true},
		"labels": {labeled, func(n *Namespaces) { n.Put("shop", map[string]string{"team": "x"}); put(n, "defaultx") },
			none, map[string]string{"kube-systm": "", "elsewhere": ""}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := NewNamespaces(c.selection)
			c.look(n)
			if got := n.Missing(); !maps.Equal(got, c.missing) {
				t.Errorf("missing: got %v, want %v", got, c.missing)
			}
			if got := n.MissingExcluded(); !maps.Equal(got, c.excluded) {
				t.Errorf("excluded: got %v, want %v", got, c.excluded)
			}
			if n.Looked() != c.looked || n.SelectsNone() != c.none {
				t.Errorf("looked %v, none %v, want %v, %v", n.Looked(), n.SelectsNone(), c.looked, c.none)
			}
		})
	}
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("no"))
}

// put records the namespaces, and that all namespaces are listed.
func put(n *Namespaces, names ...string) {
	for _, name := range names {
		n.Put(name, nil)
	}
	n.Synced()
}
