package status

import (
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// writePrometheus writes the text format of Prometheus. Every reason has a value, so that an
// alert does not have to handle a missing series.
func writePrometheus(w io.Writer, d Document) error {
	g := gauges{prometheus.NewRegistry()}
	g.set("kuberelay_status", "The verdict of forwarder status: 0 ok, 1 warning, 2 critical.", float64(d.Verdict.Level.Code()))
	findings := g.vector("kuberelay_status_finding", "The worst finding with the reason: 0 none, 1 warning, 2 critical.", "reason")
	for _, c := range Causes() {
		worst := 0
		for _, f := range d.Verdict.Findings {
			if f.Reason == c.Reason {
				worst = max(worst, f.Level.Code())
			}
		}
		findings.WithLabelValues(string(c.Reason)).Set(float64(worst))
	}
	if d.Bus.Sink != "" && d.Clusters == nil { // the forwarder has responded, for one cluster
		g.addDocument(d)
	}
	families, err := g.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

// gauges lists the metrics to write.
type gauges struct{ *prometheus.Registry }

func (g gauges) vector(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	g.MustRegister(v)
	return v
}

func (g gauges) set(name, help string, value float64) {
	g.vector(name, help).WithLabelValues().Set(value)
}

func (g gauges) addDocument(d Document) {
	g.set("kuberelay_status_bus_ready", "1 if the bus is ready, else 0.", toFloat(d.Bus.State == BusReady))
	if d.knowsUnsent() {
		g.set("kuberelay_status_oldest_unsent_seconds", "Age of the oldest change that the bus has not acknowledged.", float64(d.seconds(d.OldestUnsent)))
	}
	g.set("kuberelay_status_memory_bytes", "Memory of the Go runtime.", float64(d.Memory.Used))
	g.set("kuberelay_status_memory_limit_bytes", "Memory limit of the Go runtime, 0 for none.", float64(d.Memory.Limit))
	ofResource := func(name, help string) *prometheus.GaugeVec {
		return g.vector("kuberelay_status_resource_"+name, help, "resource")
	}
	degraded := ofResource("degraded", "1 if the last list or watch failed, else 0.")
	objects := ofResource("objects", "Objects in the cache.")
	dirty := ofResource("dirty", "Objects whose current state the bus has not acknowledged.")
	consistent := ofResource("consistent_timestamp_seconds", "Time up to which the bus is known to have every change.")
	published := ofResource("published_timestamp_seconds", "Time of the last acknowledged event.")
	for _, r := range d.Resources {
		degraded.WithLabelValues(r.Name).Set(toFloat(r.State == "degraded"))
		objects.WithLabelValues(r.Name).Set(float64(r.Objects))
		if r.Dirty != nil {
			dirty.WithLabelValues(r.Name).Set(float64(*r.Dirty))
		}
		setTime(consistent, r.Name, r.ConsistentAsOf)
		setTime(published, r.Name, r.LastPublished)
	}
}

func setTime(g *prometheus.GaugeVec, resource string, t *time.Time) {
	if t != nil {
		g.WithLabelValues(resource).Set(float64(t.UnixMilli()) / 1000)
	}
}

func toFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
