package main

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metric describes a metric for the documentation.
type metric struct {
	Name   string
	Kind   string // counter, gauge, histogram or summary
	Help   string
	Labels []string
}

// catalogue is a registerer that only collects the descriptions of metrics. It includes metrics that have
// no value yet. The zero value is ready for use.
type catalogue struct {
	mu         sync.Mutex
	metrics    map[string]metric
	collectors []prometheus.Collector
}

var _ prometheus.Registerer = (*catalogue)(nil)

// Register implements [prometheus.Registerer]. It accepts a name that is already registered.
func (c *catalogue) Register(from prometheus.Collector) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.metrics == nil {
		c.metrics = map[string]metric{}
	}
	c.collectors = append(c.collectors, from)
	var wrong error
	for d := range sent(from.Describe) {
		m, err := parse(d)
		wrong = cmp.Or(wrong, err)
		if err == nil {
			c.metrics[m.Name] = m
		}
	}
	return wrong
}

// MustRegister implements [prometheus.Registerer].
func (c *catalogue) MustRegister(from ...prometheus.Collector) {
	for _, f := range from {
		if err := c.Register(f); err != nil {
			panic(err)
		}
	}
}

// Unregister implements [prometheus.Registerer] and does nothing.
func (c *catalogue) Unregister(prometheus.Collector) bool { return false }

// Metrics returns the metrics sorted by name.
//
// For collectors that are not types of the Prometheus library, it collects values, because only a value
// shows the type of a metric. If a metric has no value, its name decides between counter and gauge.
func (c *catalogue) Metrics() []metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	described := maps.Clone(c.metrics)
	for _, from := range c.collectors {
		for name, kind := range kinds(from) {
			m := described[name]
			m.Kind = kind
			described[name] = m
		}
	}
	var sorted []metric
	for _, name := range slices.Sorted(maps.Keys(described)) {
		m := described[name]
		if m.Kind == "" {
			m.Kind = kindByName(name)
		}
		sorted = append(sorted, m)
	}
	return sorted
}

func kindByName(name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// kinds returns the types of a collector's metrics by name, as far as they are known.
func kinds(from prometheus.Collector) map[string]string {
	of := ""
	switch from.(type) {
	case *prometheus.CounterVec:
		of = "counter"
	case *prometheus.GaugeVec:
		of = "gauge"
	case *prometheus.HistogramVec:
		of = "histogram"
	case *prometheus.SummaryVec:
		of = "summary"
	}
	known := map[string]string{}
	if of != "" {
		for d := range sent(from.Describe) {
			if m, err := parse(d); err == nil {
				known[m.Name] = of
			}
		}
		return known
	}
	for value := range sent(from.Collect) {
		m, err := parse(value.Desc())
		var v dto.Metric
		if err != nil || value.Write(&v) != nil {
			continue
		}
		switch {
		case v.Counter != nil:
			known[m.Name] = "counter"
		case v.Gauge != nil:
			known[m.Name] = "gauge"
		case v.Histogram != nil:
			known[m.Name] = "histogram"
		case v.Summary != nil:
			known[m.Name] = "summary"
		}
	}
	return known
}

// sent returns an iterator over the values that a function sends to a channel. When a loop over the
// iterator ends, even after a break, the function has returned.
func sent[T any](send func(chan<- T)) iter.Seq[T] {
	return func(yield func(T) bool) {
		to := make(chan T)
		go func() { defer close(to); send(to) }()
		wanted := true
		for v := range to {
			wanted = wanted && yield(v)
		}
	}
}

// descText matches the text of a [prometheus.Desc]. A Desc has no accessors for its fields.
var descText = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{(.*)\}\}$`)

func parse(d *prometheus.Desc) (metric, error) {
	if err := d.Err(); err != nil {
		return metric{}, fmt.Errorf("describe a metric: %w", err)
	}
	found := descText.FindStringSubmatch(d.String())
	if found == nil {
		return metric{}, fmt.Errorf("describe a metric: %q does not have the known format of a descriptor", d)
	}
	name, err := strconv.Unquote(found[1])
	if err != nil {
		return metric{}, fmt.Errorf("describe a metric: name %s: %w", found[1], err)
	}
	help, err := strconv.Unquote(found[2])
	if err != nil {
		return metric{}, fmt.Errorf("describe metric %s: help: %w", name, err)
	}
	m := metric{Name: name, Help: help}
	if found[3] != "" {
		m.Labels = strings.Split(found[3], ",")
	}
	return m, nil
}
