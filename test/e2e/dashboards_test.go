package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// dashboardQueries returns the queries of a dashboard, by panel or variable.
func dashboardQueries(t *testing.T, file string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title  string
		Panels []struct {
			Type, Title string
			Targets     []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	queries := map[string]string{}
	for _, v := range d.Templating.List {
		switch m := values.FindStringSubmatch(v.Query); {
		case v.Type == "datasource":
		case m == nil:
			t.Errorf("%s: the variable %s has the query %s", d.Title, v.Name, v.Query)
		default:
			queries[d.Title+", variable "+v.Name] = fmt.Sprintf(`count by (%s) (%s) and count by (%[1]s) ({%[1]s!=""})`, m[2], m[1])
		}
	}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: the panel %s is empty", d.Title, p.Title)
		}
		for _, q := range p.Targets {
			queries[fmt.Sprintf("%s, panel %s, %s", d.Title, p.Title, q.RefID)] = q.Expr
		}
	}
	return queries
}

// TestDashboards_Slow evaluates every query of the dashboards with the metrics of one forwarder on NATS
// and one on Kafka. Every query must return a series, and every metric selector in it must match
// one.
func TestDashboards_Slow(t *testing.T) {
	go func() { _, _ = program() }() // compiles the program in the background
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	settings := map[string]string{
		"RESOURCES": "configmaps,services,*.dashboards.example.com", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "100ms", "LEASE_NAMESPACE": namespace,
	}
	bus := natsServer(t)
	u.defineGadgets("dashboards.example.com", deadConversion, "v1*", "v2") // degraded once a gadget exists
	u.createServed(gvr("dashboards.example.com", "v1", "gadgets"), namespace, gadget("dashboards.example.com/v1", "one", 1))
	h := &timeline{t: t, of: []*forwarder{
		newForwarder(t, cp.Kubeconfig(), bus.URL, merged(shortLease, settings, map[string]string{"LEASE_NAME": "on-nats"})),
		newForwarder(t, cp.Kubeconfig(), "", onKafka(topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())}, merged(shortLease, settings, map[string]string{"LEASE_NAME": "on-kafka"}))),
	}}
	degraded := `kuberelay_informer_state{reason="failing",resource="gadgets.dashboards.example.com",state="degraded"} 1`
	for _, f := range h.of {
		if err := f.Start("GOMEMLIMIT=1GiB"); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range h.of {
		f.awaitMetric(degraded, true)
		f.reaches("kuberelay_leader", 1)
		f.falls("kuberelay_dirty_objects", 0)
		f.reaches("kuberelay_resolved_total", 1)
	}
	h.scrape(2)
	for n := range 2 {
		u.create(configMaps, namespace, configMap(fmt.Sprint("c", n), "1"))
		for _, f := range h.of {
			f.reaches("kuberelay_end_to_end_lag_seconds_count", float64(n+1))
			f.falls("kuberelay_dirty_objects", 0)
		}
		h.scrape(2)
	}

	queries := map[string]string{}
	files, err := filepath.Glob("../../charts/kuberelay/files/dashboards/*.json")
	if err != nil || len(files) != 2 {
		t.Fatalf("the dashboards are %q, %v", files, err)
	}
	for _, file := range files {
		for where, q := range dashboardQueries(t, file) {
			for n := range h.of {
				queries[fmt.Sprintf("%s, pod %d", where, n)] = strings.NewReplacer(
					"$__rate_interval", "5m", "$cluster", ".*", "$namespace", "kuberelay", "$pod", target(n)["pod"]).Replace(q)
			}
		}
	}
	var names, list []string
	for name, q := range queries {
		names, list = append(names, name), append(list, q)
	}
	if len(list) < 100 {
		t.Errorf("there are %d queries", len(list))
	}
	for i, r := range h.evaluate("{}", list...).Results {
		if strings.Contains(list[i], "$") || r.Error != "" || r.Series == 0 {
			t.Errorf("%s: %s\nhas %d series, %s", names[i], list[i], r.Series, r.Error)
		}
		for _, selector := range r.Empty {
			if !strings.Contains(selector, `"ALERTS"`) { // Prometheus generates ALERTS from alerts that fire
				t.Errorf("%s: %s\nhas nothing of %s", names[i], list[i], selector)
			}
		}
	}
}
