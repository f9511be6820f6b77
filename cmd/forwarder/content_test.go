package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/projection"
)

// assignments returns the filters and dropped fields in the examples of docs/choosing.md, without the
// shell quotes.
func assignments(t *testing.T) (filters, drops []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```sh\n(KUBERELAY_[A-Z_]+)='([^']*)'\n```")
	all := example.FindAllStringSubmatch(string(page), -1)
	if got, want := len(all), strings.Count(string(page), "```sh\n"); got != want {
		t.Fatalf("%d examples are read, of %d", got, want)
	}
	for _, m := range all {
		switch m[1] {
		case "KUBERELAY_FILTER":
			filters = append(filters, m[2])
		case "KUBERELAY_DROP_FIELDS":
			drops = append(drops, m[2])
		case "KUBERELAY_HASH_FIELDS":
			var list config.Paths
			err := list.Decode(m[2])
			if err == nil {
				_, err = projection.ParseHash(list)
			}
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%s is not of this page", m[1])
		}
	}
	return filters, drops
}

var kinds = map[string]event.Resource{
	"Pod":                   {Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
	"Node":                  {Version: "v1", Resource: "nodes", Kind: "Node"},
	"ConfigMap":             {Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
	"PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true},
	"Application":           {Group: "argoproj.io", Version: "v1alpha1", Resource: "applications", Kind: "Application", Namespaced: true},
	"Kustomization":         {Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations", Kind: "Kustomization", Namespaced: true},
	"HelmRelease":           {Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases", Kind: "HelmRelease", Namespaced: true},
	"GitRepository":         {Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories", Kind: "GitRepository", Namespaced: true},
}

// TestDocumentedFilters verifies each filter in docs/choosing.md with objects that it selects and
// objects that it does not select. The cases are in the order of the page.
func TestDocumentedFilters(t *testing.T) {
	cases := []struct{ selected, not []string }{
		{ // pods, only if they fail
			[]string{`{"kind":"Node"}`, `{"kind":"Pod","status":{"phase":"Failed"}}`, `{"kind":"Pod","status":{"phase":"Running","containerStatuses":[{"restartCount":4}]}}`,
				`{"kind":"Pod","status":{"phase":"Pending","containerStatuses":[{"restartCount":0,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`},
			[]string{`{"kind":"Pod","status":{"phase":"Pending"}}`, `{"kind":"Pod","status":{"phase":"Running","containerStatuses":[{"restartCount":3,"state":{"running":{}}}]}}`},
		},
		{ // Applications, only if they are out of sync or unhealthy
			[]string{`{"kind":"Pod"}`, `{"kind":"Application"}`, `{"kind":"Application","status":{"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}}}`,
				`{"kind":"Application","status":{"sync":{"status":"Synced"},"health":{"status":"Degraded"}}}`},
			[]string{`{"kind":"Application","status":{"sync":{"status":"Synced"},"health":{"status":"Healthy"}}}`},
		},
		{ // an annotation
			[]string{`{"kind":"Pod","metadata":{"name":"a"}}`, `{"kind":"Pod","metadata":{"annotations":{"example.com/relay":"on"}}}`},
			[]string{`{"kind":"Pod","metadata":{"annotations":{"example.com/relay":"off"}}}`},
		},
		{ // a label
			[]string{`{"kind":"Node","metadata":{"name":"a"}}`, `{"kind":"Pod","metadata":{"labels":{"team":"search"}}}`},
			[]string{`{"kind":"Pod","metadata":{"labels":{"team":"other"}}}`, `{"kind":"Pod","metadata":{"labels":{"app":"search"}}}`, `{"kind":"Pod","metadata":{"name":"a"}}`},
		},
		{ // a quantity
			[]string{`{"kind":"Pod"}`, `{"kind":"PersistentVolumeClaim","spec":{"resources":{"requests":{"storage":"100Gi"}}}}`, `{"kind":"PersistentVolumeClaim","spec":{"resources":{"requests":{"storage":"1Ti"}}}}`},
			[]string{`{"kind":"PersistentVolumeClaim","spec":{"resources":{"requests":{"storage":"100G"}}}}`},
		},
		{ // fields that can be missing, in two ways
			[]string{`{"kind":"Pod","status":{"phase":"Failed"}}`},
			[]string{`{"kind":"Pod"}`, `{"kind":"Pod","status":{}}`, `{"kind":"Pod","status":{"phase":"Running"}}`},
		},
		{
			[]string{`{"kind":"Pod","status":{"phase":"Failed"}}`},
			[]string{`{"kind":"Pod"}`, `{"kind":"Pod","status":{}}`, `{"kind":"Pod","status":{"phase":"Running"}}`},
		},
	}
	filters, _ := assignments(t)
	if len(filters) != len(cases) {
		t.Fatalf("%d filters, and cases for %d", len(filters), len(cases))
	}
	for i, expression := range filters {
		f, err := filter.Compile(expression)
		if err != nil {
			t.Error(err)
			continue
		}
		for want, objects := range map[bool][]string{true: cases[i].selected, false: cases[i].not} {
			for _, text := range objects {
				object := object(t, text)
				got := true
				if selects := f.For(kinds[object["kind"].(string)]); selects != nil {
					if got, err = selects(object); err != nil {
						t.Errorf("%s:\n%s: %v", expression, text, err)
					}
				}
				if got != want {
					t.Errorf("%s:\n%s: got %v, want %v", expression, text, got, want)
				}
			}
		}
	}
}

// TestDocumentedPaths verifies that each path in docs/choosing.md and in its table drops the field
// that it names.
func TestDocumentedPaths(t *testing.T) {
	objects := map[string]string{
		"nodes": `{"kind":"Node","metadata":{"annotations":{"example.com/checksum":"x"}},"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"x","message":"x"}],"images":[{}]}}`,
		"pods":  `{"kind":"Pod","metadata":{"labels":{"pod-template-hash":"x"}}}`,
		"*": `{"kind":"Pod","metadata":{"annotations":{"deployment.kubernetes.io/revision":"1","example.com/checksum":"x"},"labels":{"a":"b"}},
			"spec":{"template":{"spec":{}},"tolerations":[{"effect":"NoExecute"}]},"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"x","message":"x"}]}}`,
		"applications.argoproj.io":      `{"kind":"Application","metadata":{"annotations":{"argocd.argoproj.io/refresh":"x"}},"status":{"reconciledAt":"x","history":[{}],"operationState":{}}}`,
		"*.kustomize.toolkit.fluxcd.io": `{"kind":"Kustomization","metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"x"}},"status":{"lastHandledReconcileAt":"x","conditions":[{"lastTransitionTime":"x"}]}}`,
		"*.helm.toolkit.fluxcd.io":      `{"kind":"HelmRelease","metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"x"}},"status":{"lastHandledReconcileAt":"x"}}`,
		"*.source.toolkit.fluxcd.io":    `{"kind":"GitRepository","metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"x"}},"status":{"lastHandledReconcileAt":"x","artifact":{"lastUpdateTime":"x"}}}`,
	}
	_, drops := assignments(t)
	page, err := os.ReadFile("../../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(\\.[^`]+)` \\|").FindAllStringSubmatch(string(page), -1)
	if len(drops) < 4 || len(rows) < 7 {
		t.Fatalf("the page has %d lists of fields and %d paths in its table", len(drops), len(rows))
	}
	for _, m := range rows {
		drops = append(drops, "*:"+m[1])
	}
	for _, value := range drops {
		var list config.Paths
		if err := list.Decode(value); err != nil {
			t.Fatal(err)
		}
		for _, entry := range list {
			p, err := projection.ParseDrop([]string{entry})
			if err != nil {
				t.Error(err)
				continue
			}
			resource, _, _ := strings.Cut(entry, ":")
			before := object(t, objects[resource])
			after := object(t, objects[resource])
			p.For(kinds[before["kind"].(string)]).Project(after, nil)
			if text(t, before) == text(t, after) {
				t.Errorf("%s drops nothing of %s", entry, objects[resource])
			}
		}
	}
}

// TestConfigIsALineEach verifies that a multiline expression is one line in the table of effective
// values.
func TestConfigIsALineEach(t *testing.T) {
	var b bytes.Buffer
	if err := writeText(&b, []config.Value{{Field: config.Field{Name: "A"}, Value: "a ||\n b", Set: true}}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "VARIABLE  VALUE    SOURCE\nA         a ||  b  environment\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}

func text(t *testing.T, object map[string]any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
