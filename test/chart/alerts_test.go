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

// alertCase has series of half an hour, one value a minute, with which an alert fires at the end,
// and series with which it does not. "{of" stands for the labels of the forwarders.
type alertCase struct {
	alert   string
	firing  [][]string
	quiet   [][]string
	labels  map[string]string // of the alert, without the severity
	summary string            // "" if it has nothing of the series
}

const (
	natsConnected = "kuberelay_nats_connected{of} 1x40"
	oneEvent      = "0x20 1x20"
)

func alertCases() []alertCase {
	pod := map[string]string{"pod": "a"}
	return []alertCase{
		{
			alert:  "KuberelayDown",
			firing: [][]string{{"up{of} 0x40"}, {`up{namespace="kuberelay",service="another"} 1x40`}},
			quiet:  [][]string{{"up{of} 1x40"}, {"up{of} 0x14 1x1 0x30"}, {`up{of,pod="a"} 0x40`, `up{of,pod="b"} 1x40`}},
		},
		{
			alert:  "KuberelayBusAway",
			firing: [][]string{{"kuberelay_nats_connected{of} 0x40"}, {natsConnected, "kuberelay_oldest_unsent_change_seconds{of} 120x40", `kuberelay_events_published_total{of,type="created"} 7x40`}},
			quiet: [][]string{
				{`kuberelay_nats_connected{of,pod="a"} 0x40`, `kuberelay_nats_connected{of,pod="b"} 1x40`},
				{natsConnected, "kuberelay_oldest_unsent_change_seconds{of} 120x40", `kuberelay_events_published_total{of,type="created"} 0+7x40`},
				{natsConnected, "kuberelay_oldest_unsent_change_seconds{of} 59x40", `kuberelay_events_published_total{of,type="created"} 7x40`},
			},
		},
		{
			alert:  "KuberelayPublishRejected",
			firing: [][]string{{`kuberelay_nats_publishes_total{of,result="full"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_nats_publishes_total{of,result="full"} 0x20 3x20`, `kuberelay_nats_publishes_total{of,result="stored"} 0+9x40`, `kuberelay_nats_publishes_total{of,result="too_large"} 0+9x40`}},
			labels: map[string]string{"result": "full"}, summary: "The bus keeps refusing events: full.",
		},
		{
			alert:  "KuberelayNobodyLeads",
			firing: [][]string{{`kuberelay_leader{of,pod="a"} 0x40`, `kuberelay_leader{of,pod="b"} 0x40`}},
			quiet:  [][]string{{`kuberelay_leader{of,pod="a"} 0x40`, `kuberelay_leader{of,pod="b"} 1x40`}, {`kuberelay_leader{of,pod="a"} 1x20 0x20`}},
		},
		{
			alert:  "KuberelayBehind",
			firing: [][]string{{`kuberelay_dirty_objects{of,pod="a"} 0x10 5x30`}},
			quiet:  [][]string{{`kuberelay_dirty_objects{of,pod="a"} 5x20 0 5x20`}},
			labels: map[string]string{"namespace": "kuberelay", "service": "kr-kuberelay", "pod": "a"}, summary: "5 objects have changed and are not on the bus.",
		},
		{
			alert:  "KuberelayInformerDegraded",
			firing: [][]string{{`kuberelay_informer_state{of,resource="pods",state="degraded",reason="forbidden"} 1x40`}},
			quiet:  [][]string{{`kuberelay_informer_state{of,resource="pods",state="synced",reason=""} 1x40`}, {`kuberelay_informer_state{of,resource="pods",state="degraded",reason="forbidden"} 1x20 _x20`}},
			labels: map[string]string{"resource": "pods", "reason": "forbidden"}, summary: "pods cannot be watched: forbidden.",
		},
		{
			alert:  "KuberelayDiscoveryFailing",
			firing: [][]string{{`kuberelay_discovery_failing{of,group="a.example.com"} 1x40`}},
			quiet:  [][]string{{`kuberelay_discovery_failing{of,group="a.example.com"} _x20 1x20`}},
			labels: map[string]string{"group": "a.example.com"}, summary: "Discovery of the API group a.example.com fails.",
		},
		{
			alert:  "KuberelayConsistencyPointOld",
			firing: [][]string{{natsConnected, `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`}},
			quiet: [][]string{
				{natsConnected, `kuberelay_resolved_age_seconds{of,resource="pods"} 600x40`},
				{"kuberelay_nats_connected{of} 0x40", `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`},
			},
			labels: map[string]string{"resource": "pods"}, summary: "The copy of pods was last known to be complete 30m 0s ago.",
		},
		{
			alert:   "KuberelaySlow",
			firing:  [][]string{lagBuckets("0+0x40", "0+9x40")},
			quiet:   [][]string{lagBuckets("0+9x40", "0+9x40"), lagBuckets("0x20 0x20", "0x20 9x20")},
			summary: "1% of the changes take longer than 1m 59s to the bus.",
		},
		{
			alert:  "KuberelayObjectTruncated",
			firing: [][]string{{`kuberelay_events_truncated_total{of,resource="pods"} ` + oneEvent}, {`kuberelay_events_truncated_total{of,resource="pods"} _x20 1x20`}},
			quiet:  [][]string{{`kuberelay_events_truncated_total{of,resource="pods"} 1x40`}, {`kuberelay_events_truncated_total{of,resource="pods"} _x20 0x20`}},
			labels: map[string]string{"resource": "pods"}, summary: "Objects of pods are too large for the bus.",
		},
		{
			alert:  "KuberelayFilterFailing",
			firing: [][]string{{`kuberelay_filter_errors_total{of,resource="pods"} _x20 1x20`}, {`kuberelay_filter_errors_total{of,resource="pods"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_filter_errors_total{of,resource="pods"} _x5 1x40`}},
			labels: map[string]string{"resource": "pods"}, summary: "KUBERELAY_FILTER fails for objects of pods.",
		},
		{
			alert:  "KuberelayForeignEvents",
			firing: [][]string{{"kuberelay_foreign_events_total{of} " + oneEvent}},
			quiet:  [][]string{{"kuberelay_foreign_events_total{of} 3x40"}},
		},
		{
			alert:  "KuberelayInvalidMessages",
			firing: [][]string{{`kuberelay_invalid_messages_total{of,reason="id"} ` + oneEvent}},
			quiet:  [][]string{{`kuberelay_invalid_messages_total{of,reason="id"} 3x40`}},
			labels: map[string]string{"reason": "id"}, summary: "Messages on the bus are not Kuberelay events: id.",
		},
		{
			alert:  "KuberelayAnotherWriter",
			firing: [][]string{{`kuberelay_nats_publishes_total{of,result="already_stored"} 0+1x40`}, {`kuberelay_nats_publishes_total{of,result="conflict"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_nats_publishes_total{of,result="already_stored"} 0x22 500x20`, `kuberelay_nats_publishes_total{of,result="stored"} 0+1x40`}},
		},
		{
			alert:  "KuberelayMemoryLow",
			firing: [][]string{memoryOf(99)}, quiet: [][]string{memoryOf(90)},
			labels: pod, summary: "a uses 99% of its memory limit.",
		},
		{
			alert:  "KuberelayRestarting",
			firing: [][]string{{`process_start_time_seconds{of,pod="a"} 1x10 2x5 3x5 4x20`}},
			quiet:  [][]string{{`process_start_time_seconds{of,pod="a"} 1x10 2x10 3x20`}, {`process_start_time_seconds{of,pod="a"} 1x40`, `process_start_time_seconds{of,pod="b"} 2x40`}},
			labels: pod, summary: "a has restarted 3 times in 30 minutes.",
		},
	}
}

// kafkaCases are the alerts that differ on Kafka.
func kafkaCases() []alertCase {
	const ready = "kuberelay_kafka_ready{of} 1x40"
	return []alertCase{
		{
			alert:  "KuberelayBusAway",
			firing: [][]string{{"kuberelay_kafka_ready{of} 0x40"}},
			quiet:  [][]string{{ready, "kuberelay_nats_connected{of} 0x40"}},
		},
		{
			alert:  "KuberelayPublishRejected",
			firing: [][]string{{`kuberelay_kafka_publishes_total{of,result="denied"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_kafka_publishes_total{of,result="not_ready"} 0+1x40`}},
			labels: map[string]string{"result": "denied"}, summary: "The bus keeps refusing events: denied.",
		},
		{
			alert:  "KuberelayConsistencyPointOld",
			firing: [][]string{{ready, `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`}},
			quiet:  [][]string{{"kuberelay_kafka_ready{of} 0x40", `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`}},
			labels: map[string]string{"resource": "pods"}, summary: "The copy of pods was last known to be complete 30m 0s ago.",
		},
		{
			alert:  "KuberelayAnotherWriter",
			firing: [][]string{{"kuberelay_kafka_sessions_total{of} 1+1x40"}},
			quiet:  [][]string{{"kuberelay_kafka_sessions_total{of} 1x22 2x20"}},
		},
	}
}

// lagBuckets are changes that took up to a minute, and those that took up to two.
func lagBuckets(minute, two string) []string {
	const bucket = "kuberelay_end_to_end_lag_seconds_bucket"
	return []string{bucket + `{of,le="60"} ` + minute, bucket + `{of,le="120"} ` + two, bucket + `{of,le="+Inf"} ` + two}
}

func memoryOf(percent int) []string {
	return []string{
		fmt.Sprintf(`go_memstats_sys_bytes{of,pod="a"} %dx40`, 2*percent), fmt.Sprintf(`go_memstats_heap_released_bytes{of,pod="a"} %dx40`, percent),
		`go_gc_gomemlimit_bytes{of,pod="a"} 100x40`,
	}
}

// alertRule is what the chart renders of an alert.
type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts renders the rules, as a file that Prometheus reads, and the alerts in it.
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

// TestAlertRules runs each alert with Prometheus' own rule tester: it fires, and it does not.
func TestAlertRules(t *testing.T) {
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

// test is a test as promtool reads it.
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

// expected is the alert that fires, with the annotations of the rule.
func (c alertCase) expected(r alertRule) []any {
	labels, annotations := map[string]string{"severity": r.Labels["severity"]}, maps.Clone(r.Annotations)
	maps.Copy(labels, c.labels)
	if c.summary != "" {
		annotations["summary"] = c.summary
	}
	return []any{map[string]any{"exp_labels": labels, "exp_annotations": annotations}}
}

// TestAlertsAreDocumented: the runbook of each alert is a heading of docs/troubleshooting.md, and
// each heading there is an alert.
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

// TestDashboardConfigMaps: they have the files, which Grafana can read, and Helm changes nothing in
// them.
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
