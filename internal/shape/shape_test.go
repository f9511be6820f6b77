package shape

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/filter"
)

// TestFilterErrorsAreCountedAndSaidOnce verifies that each state for which the filter fails is
// counted and published. The log reports only the first failure of each resource.
func TestFilterErrorsAreCountedAndSaidOnce(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	f := filter.NewFailures(slog.New(slog.NewTextHandler(&log, nil)), registry)
	s, err := New(config.Content{Filter: `object.status.phase == "Failed"`}, f.Add)
	if err != nil {
		t.Fatal(err)
	}
	fails, fine := map[string]any{"secret": "canary"}, map[string]any{"status": map[string]any{"phase": "Failed"}}
	for _, r := range []struct {
		event.Resource
		states []map[string]any
	}{
		{event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}, []map[string]any{fails, fine, fails, fails}},
		{event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}, []map[string]any{fine, fails}},
		{event.Resource{Group: "apps", Version: "v1beta1", Resource: "deployments", Kind: "Deployment", Namespaced: true}, []map[string]any{fails}},
		{event.Resource{Version: "v1", Resource: "nodes", Kind: "Node"}, []map[string]any{fine}},
	} {
		selects := s.of(r.Resource).Select
		for _, state := range r.states {
			if selected, _ := selects(state); !selected {
				t.Errorf("%s: %v is not published", r.GroupResource(), state)
			}
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				got[family.GetName()+" "+l.GetName()+" "+l.GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"kuberelay_filter_errors_total resource pods": 3, "kuberelay_filter_errors_total resource deployments.apps": 2}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if since, err := f.First("deployments.apps"); err == nil || !strings.Contains(err.Error(), "no such field") || since.IsZero() {
		t.Errorf("first error of deployments: got %v at %s", err, since)
	}
	if _, err := f.First("nodes"); err != nil {
		t.Errorf("first error of nodes: got %v, want none", err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "resource=pods") || !strings.Contains(lines[1], "resource=deployments.apps") {
		t.Errorf("the log says\n%s\nwant a line for pods and one for deployments", log.String())
	}
	for _, l := range lines {
		if !strings.Contains(l, "level=WARN") || !strings.Contains(l, "no such field: object.status.phase") || strings.Contains(l, "canary") {
			t.Errorf("the log says %s, want the part that fails, without content of the object", l)
		}
	}
}

// TestWarnings verifies that the log names the fields that are known to hold secrets but are
// published.
func TestWarnings(t *testing.T) {
	clients := event.Resource{Group: "oauth.openshift.io", Version: "v1", Resource: "oauthclients", Kind: "OAuthClient"}
	pods := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	const secret, more = "oauthclients.oauth.openshift.io:.secret", "oauthclients.oauth.openshift.io:.additionalSecrets[*]"
	for name, tc := range map[string]struct {
		content config.Content
		watched []event.Resource
		want    []string
	}{
		"the list is on":           {config.Content{HashKnown: true}, []event.Resource{clients, pods}, nil},
		"the list is off":          {config.Content{}, []event.Resource{clients, pods}, []string{"known to hold secrets are published", secret, more}},
		"nothing of it is watched": {config.Content{}, []event.Resource{pods}, nil},
		"one is hashed":            {config.Content{HashFields: config.Paths{"OAuthClient:.secret"}}, []event.Resource{clients}, []string{"known to hold secrets are published", more}},
		"all are hidden":           {config.Content{HashFields: config.Paths{"OAuthClient:.secret"}, DropFields: config.Paths{"*:.additionalSecrets"}}, []event.Resource{clients}, nil},
	} {
		s, err := New(tc.content, nil)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s.Warn(tc.watched, slog.New(slog.NewTextHandler(&log, nil)))
		for _, word := range []string{"known to hold secrets are published", secret, more} {
			want := strings.Contains(strings.Join(tc.want, "\n"), word)
			if got := strings.Contains(log.String(), word); got != want {
				t.Errorf("%s: %q in the log is %v:\n%s", name, word, got, log.String())
			}
		}
	}
}
