package main

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
)

// TestFilterErrorsAreCountedAndSaidOnce: each state for which the filter fails is counted
// and sent, and the log says so once for each resource.
func TestFilterErrorsAreCountedAndSaidOnce(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	s, err := newShapes(config.Content{Filter: `object.status.phase == "Failed"`}, filterErrors(slog.New(slog.NewTextHandler(&log, nil)), registry))
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
			if !selects(state) {
				t.Errorf("%s: %v is not sent", r.GroupResource(), state)
			}
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				got[f.GetName()+" "+l.GetName()+" "+l.GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"kuberelay_filter_errors_total resource pods": 3, "kuberelay_filter_errors_total resource deployments.apps": 2}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "resource=pods") || !strings.Contains(lines[1], "resource=deployments.apps") {
		t.Errorf("the log says\n%s\nwant a line for pods and one for deployments", log.String())
	}
	for _, l := range lines {
		if !strings.Contains(l, "level=WARN") || !strings.Contains(l, "there is no such field: object.status.phase") || strings.Contains(l, "canary") {
			t.Errorf("the log says %s, want what part fails and nothing of the object", l)
		}
	}
}
