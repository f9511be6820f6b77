package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// timeline contains the scrapes that a Prometheus would have if it scraped some forwarders every
// minute. The metrics are real, but the times aren't: each scrape, or repetition of a scrape, adds
// one minute.
type timeline struct {
	t       *testing.T
	of      []*forwarder
	minute  int64
	scrapes []scraped
}

// scraped is part of the input of test/prometheus, like the type evaluation.
type scraped struct {
	At     int64
	Labels map[string]string
	Up     bool
	Text   string
}

type evaluation struct {
	Scrapes []scraped
	Until   int64
	Rules   string
	Queries []string
}

// verdict is the output of test/prometheus.
type verdict struct {
	Firing []struct {
		At                  int64
		Labels, Annotations map[string]string
	}
	Results []struct {
		Series int
		Empty  []string
		Error  string
	}
}

// target returns the labels that the chart's ServiceMonitor gives to the n-th pod.
func target(n int) map[string]string {
	return map[string]string{"cluster": "prod-eu1", "namespace": "kuberelay", "service": "kr-kuberelay", "pod": fmt.Sprintf("kr-%d", n), "job": "kr-kuberelay"}
}

// scrape scrapes all forwarders once and records the result for the given number of minutes.
func (h *timeline) scrape(minutes int) {
	h.t.Helper()
	var now []scraped
	for n, f := range h.of {
		status, text, err := f.get(h.t.Context(), "/metrics")
		up := err == nil && status == http.StatusOK
		if !up {
			text = ""
		}
		now = append(now, scraped{Labels: target(n), Up: up, Text: text})
	}
	for range minutes {
		for _, s := range now {
			s.At = h.minute * 60
			h.scrapes = append(h.scrapes, s)
		}
		h.minute++
	}
}

// program builds test/prometheus once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "prometheus")
	out, err := exec.Command("go", "build", "-C", "../prometheus", "-o", path, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build test/prometheus: %w\n%s", err, out)
	}
	return path, err
})

// evaluate evaluates rules and queries with the Prometheus engine.
func (h *timeline) evaluate(rules string, queries ...string) (v verdict) {
	h.t.Helper()
	path, err := program()
	if err != nil {
		h.t.Fatal(err)
	}
	input, err := json.Marshal(evaluation{h.scrapes, h.minute * 60, rules, queries})
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), path)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		h.t.Fatalf("%v: %s", err, stderr.String())
	}
	return v
}

// fired returns the alerts that fire one minute before the given minute, and the alerts that fire
// at or after it.
func (h *timeline) fired(rules string, minute int64) (before, after []string) {
	h.t.Helper()
	early, late := map[string]bool{}, map[string]bool{}
	for _, f := range h.evaluate(rules).Firing {
		if f.Annotations["runbook_url"] == "" || strings.Contains(f.Annotations["summary"], "error expanding template") {
			h.t.Errorf("an alert has the annotations %v", f.Annotations)
		}
		switch {
		case f.At == (minute-1)*60:
			early[f.Labels["alertname"]] = true
		case f.At >= minute*60:
			late[f.Labels["alertname"]] = true
		}
	}
	return slices.Sorted(maps.Keys(early)), slices.Sorted(maps.Keys(late))
}

// chartRules renders the chart's alerts as a rule file for Prometheus.
func chartRules(t *testing.T, set ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-s", "-C", "../..", "which-helm").Output()
	if err != nil {
		t.Fatalf("make which-helm: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	args := []string{"template", "kr", "../../charts/kuberelay", "--namespace", "kuberelay", "--show-only", "templates/prometheusrule.yaml"}
	for _, s := range append(set, "config.resources=configmaps", "config.natsUrl=nats://nats:4222", "prometheusRule.enabled=true") {
		args = append(args, "--set", s)
	}
	rendered, err := exec.CommandContext(t.Context(), lines[len(lines)-1], args...).Output()
	if err != nil {
		t.Fatalf("helm template: %v", err)
	}
	var o struct {
		Spec struct {
			Groups []map[string]any `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(rendered, &o); err != nil || len(o.Spec.Groups) != 1 {
		t.Fatalf("%d groups of rules: %v", len(o.Spec.Groups), err)
	}
	rules, err := yaml.Marshal(o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(rules)
}

// alertNames returns the names of the alerts in a rule file.
func alertNames(t *testing.T, rules string) (names []string) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal([]byte(rules), &file); err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Groups[0].Rules {
		names = append(names, r.Alert)
	}
	slices.Sort(names)
	return names
}

// reaches waits until a metric, or the sum of its series, is at least the given number.
func (f *forwarder) reaches(metric string, least float64) {
	f.t.Helper()
	poll.Try(f.t, fmt.Sprintf("%s reaches %v", metric, least), func(ctx context.Context) error {
		got, err := f.Metric(ctx, metric)
		if err == nil && got < least {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}

// falls waits until a metric is at most the given number.
func (f *forwarder) falls(metric string, most float64) {
	f.t.Helper()
	poll.Try(f.t, fmt.Sprintf("%s falls to %v", metric, most), func(ctx context.Context) error {
		got, err := f.Metric(ctx, metric)
		if err == nil && got > most {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}
