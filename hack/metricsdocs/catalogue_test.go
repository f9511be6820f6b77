package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kuberelay/kuberelay/internal/operations"
)

// fixed is a collector with one metric that has a value and two metrics that have none.
type fixed struct{}

var (
	setDesc   = prometheus.NewDesc("set", "Set.", nil, nil)
	unsetDesc = prometheus.NewDesc("unset", "Unset.", []string{"resource"}, nil)
	noneDesc  = prometheus.NewDesc("none_total", "None.", nil, nil)
)

func (fixed) Describe(to chan<- *prometheus.Desc) { to <- setDesc; to <- unsetDesc; to <- noneDesc }

func (fixed) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstSummary(setDesc, 1, 1, nil)
}

func TestCatalogue(t *testing.T) {
	var c catalogue
	f := promauto.With(&c)
	f.NewCounterVec(prometheus.CounterOpts{Name: "a", Help: `Says "a", variableLabels: {b} and \ too.`}, []string{"resource", "type"})
	f.NewGaugeVec(prometheus.GaugeOpts{Name: "b_total", Help: "B."}, []string{"reason"})
	f.NewHistogramVec(prometheus.HistogramOpts{Name: "c", Help: "C: ä."}, []string{"name"})
	f.NewSummaryVec(prometheus.SummaryOpts{Name: "d", Help: "D."}, []string{"name"})
	f.NewCounter(prometheus.CounterOpts{Name: "e", Help: "E.", ConstLabels: prometheus.Labels{"x": "y"}})
	f.NewGauge(prometheus.GaugeOpts{Name: "f_total", Help: "F."})
	f.NewHistogram(prometheus.HistogramOpts{Name: "g", Help: "G."})
	c.MustRegister(fixed{})
	c.MustRegister(fixed{}) // must not panic

	want := []metric{
		{"a", "counter", `Says "a", variableLabels: {b} and \ too.`, []string{"resource", "type"}},
		{"b_total", "gauge", "B.", []string{"reason"}},
		{"c", "histogram", "C: ä.", []string{"name"}},
		{"d", "summary", "D.", []string{"name"}},
		{"e", "counter", "E.", nil},
		{"f_total", "gauge", "F.", nil},
		{"g", "histogram", "G.", nil},
		{"none_total", "counter", "None.", nil},
		{"set", "summary", "Set.", nil},
		{"unset", "gauge", "Unset.", []string{"resource"}},
	}
	got := c.Metrics()
	if !slices.EqualFunc(got, want, func(a, b metric) bool {
		return a.Name == b.Name && a.Kind == b.Kind && a.Help == b.Help && slices.Equal(a.Labels, b.Labels)
	}) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestCatalogueRefusesWhatCannotBeDescribed(t *testing.T) {
	var c catalogue
	if err := c.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "\xff"})); err == nil {
		t.Errorf("a metric without a valid name was accepted: %q", c.Metrics())
	}
}

// TestTheCatalogueOfOperations verifies the names of the metrics in package operations. The names must not
// change, because dashboards and alerts for Kubernetes' own components use them.
func TestTheCatalogueOfOperations(t *testing.T) {
	var c catalogue
	operations.Register(&c, "", "")
	operations.WorkqueueMetrics(&c)
	operations.InformerMetrics(&c)
	var got []string
	for _, m := range c.Metrics() {
		if m.Help == "" {
			t.Errorf("%s has no help", m.Name)
		}
		if !strings.HasPrefix(m.Name, "go_") && !strings.HasPrefix(m.Name, "process_") {
			got = append(got, m.Name+" "+m.Kind+" "+strings.Join(m.Labels, ","))
		}
	}
	want := []string{
		"informer_processing_latency_seconds histogram resource",
		"informer_queued_items gauge resource",
		"informer_store_resource_version gauge resource",
		"kuberelay_build_info gauge version,commit,goversion",
		"rest_client_rate_limiter_duration_seconds histogram verb",
		"rest_client_request_duration_seconds histogram verb",
		"rest_client_requests_total counter code,method",
		"workqueue_adds_total counter name",
		"workqueue_depth gauge name",
		"workqueue_longest_running_processor_seconds gauge name",
		"workqueue_queue_duration_seconds histogram name",
		"workqueue_retries_total counter name",
		"workqueue_unfinished_work_seconds gauge name",
		"workqueue_work_duration_seconds histogram name",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
