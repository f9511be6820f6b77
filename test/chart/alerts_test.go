package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertRule is an alerting rule as the chart renders it.
type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts renders the alerting rules. It returns the path of a file that Prometheus can read, and
// the alerts in the file.
func alerts(t *testing.T, v values) (file string, all map[string]alertRule) {
	t.Helper()
	v = maps.Clone(v)
	v["prometheusRule"] = values{"enabled": true}
	spec, err := yaml.Marshal(render(t, "kuberelay", v).of("PrometheusRule")[0].Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var rules struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal(spec, &rules); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	all = map[string]alertRule{}
	for _, r := range rules.Groups[0].Rules {
		all[r.Alert] = r
	}
	return file, all
}

// TestAlertRules_Slow runs promtool's unit tests for each alert, with series that make the alert fire
// and series that don't.
func TestAlertRules_Slow(t *testing.T) {
	for bus, of := range map[string]struct {
		config values
		cases  []alertCase
	}{
		"nats":  {values{"resources": "pods", "natsUrl": "nats://nats:4222"}, alertCases()},
		"kafka": {values{"resources": "pods", "sink": "kafka", "kafkaBrokers": "kafka:9092"}, kafkaCases()},
	} {
		t.Run(bus, func(t *testing.T) {
			file, rules := alerts(t, values{"config": of.config})
			var tests []any
			tested := map[string]bool{}
			for _, c := range of.cases {
				tested[c.alert] = true
				r, ok := rules[c.alert]
				if !ok || len(c.firing) == 0 || len(c.quiet) == 0 {
					t.Fatalf("%s: there is no such alert, or no case", c.alert)
				}
				for i, series := range c.firing {
					tests = append(tests, c.test(fmt.Sprintf("fires %d", i), series, c.expected(r)))
				}
				for i, series := range c.quiet {
					tests = append(tests, c.test(fmt.Sprintf("is quiet %d", i), series, nil))
				}
			}
			if bus == "nats" && len(tested) != len(rules) {
				t.Errorf("there are %d alerts, and cases of %d", len(rules), len(tested))
			}
			content, err := yaml.Marshal(map[string]any{"rule_files": []string{file}, "evaluation_interval": "1m", "tests": tests})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "tests.yaml")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"check", "rules", file}, {"test", "rules", path}} {
				if out, stderr, err := run(t.Context(), "", tool(t, "promtool"), args...); err != nil {
					t.Errorf("promtool %s: %v\n%s%s", strings.Join(args[:2], " "), err, out, stderr)
				}
			}
		})
	}
}

// test returns the case as a unit test for promtool.
func (c alertCase) test(name string, series []string, expected []any) map[string]any {
	var input []any
	for _, s := range series {
		s = strings.Replace(s, "{of", `{namespace="kuberelay",service="kr-kuberelay"`, 1)
		selector, values, _ := strings.Cut(s, "} ")
		input = append(input, map[string]string{"series": selector + "}", "values": values})
	}
	return map[string]any{
		"name": c.alert + " " + name, "interval": "1m", "input_series": input,
		"alert_rule_test": []any{map[string]any{"eval_time": "30m", "alertname": c.alert, "exp_alerts": expected}},
	}
}

// expected returns the firing alert with the rule's annotations.
func (c alertCase) expected(r alertRule) []any {
	labels, annotations := map[string]string{"severity": r.Labels["severity"]}, maps.Clone(r.Annotations)
	maps.Copy(labels, c.labels)
	if c.summary != "" {
		annotations["summary"] = c.summary
	}
	return []any{map[string]any{"exp_labels": labels, "exp_annotations": annotations}}
}

// TestAlertsAreDocumented verifies that the runbook link of each alert names a heading in
// docs/troubleshooting.md, and that each such heading names an alert.
func TestAlertsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for _, m := range regexp.MustCompile(`(?m)^### (Kuberelay\w+)$`).FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, m[1])
	}
	_, rules := alerts(t, values{"config": values{"resources": "pods", "natsUrl": "nats://nats:4222"}})
	slices.Sort(headings)
	if names := slices.Sorted(maps.Keys(rules)); !slices.Equal(names, headings) || len(names) < 12 {
		t.Errorf("the alerts are %q, and the headings of docs/troubleshooting.md %q", names, headings)
	}
	for name, r := range rules {
		const docs = "https://github.com/kuberelay/kuberelay/blob/main/docs/troubleshooting.md#"
		if want := docs + strings.ToLower(name); r.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook %q, want %q", name, r.Annotations["runbook_url"], want)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] != "warning" && r.Labels["severity"] != "critical" {
			t.Errorf("%s has the annotations %v and the labels %v", name, r.Annotations, r.Labels)
		}
	}
}

// TestDashboardConfigMaps verifies that the ConfigMaps contain the dashboard files, that Grafana
// can read the files, and that Helm changes nothing in them.
func TestDashboardConfigMaps(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range render(t, "kuberelay", values{"config": values{"resources": "pods"}, "dashboards": values{"enabled": true}}).of("ConfigMap") {
		data, _ := o.Object["data"].(map[string]any)
		for name, content := range data {
			if !strings.HasSuffix(name, ".json") {
				continue
			}
			file, err := os.ReadFile(filepath.Join(chart, "files", "dashboards", name))
			if err != nil || string(file) != content {
				t.Errorf("%s differs from the file: %v", name, err)
			}
			var d struct {
				UID    string
				Panels []struct{ ID int }
			}
			if err := json.Unmarshal([]byte(content.(string)), &d); err != nil || d.UID == "" || len(d.Panels) == 0 || seen[d.UID] {
				t.Errorf("%s: %v, %+v", name, err, d)
			}
			seen[d.UID] = true
		}
	}
	if len(seen) != 2 {
		t.Errorf("there are the dashboards %v", seen)
	}
}
