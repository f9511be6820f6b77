package health

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/discovery"
)

var (
	objectsDesc = prometheus.NewDesc("kuberelay_informer_objects", "Objects in the informer's cache. Multiply by the size of the objects to estimate memory: see docs/sizing.md.", []string{"resource"}, nil)
	syncedDesc  = prometheus.NewDesc("kuberelay_informer_synced", "1 if the first list of the resource is complete in every namespace, else 0. If it stays 0, see kuberelay_informer_failing and the log.", []string{"resource"}, nil)
	failingDesc = prometheus.NewDesc("kuberelay_informer_failing", "1 if the last list or watch of the resource failed, by reason. For forbidden, grant get, list, and watch; for the other reasons, see the log.", []string{"resource", "reason"}, nil)
	stateDesc   = prometheus.NewDesc("kuberelay_informer_state", "1 for the state of the resource's informer: starting, synced, or degraded, with the reason; with several namespaces, the worst. Alert on degraded: see docs/resources.md, States.", []string{"resource", "state", "reason"}, nil)
	sinceDesc   = prometheus.NewDesc("kuberelay_informer_state_since_timestamp_seconds", "Unix time at which the resource's informer entered its state. Subtract it from the current time to see how long the state has lasted.", []string{"resource"}, nil)
)

// Describe sends the descriptions of the metrics that [Report.Collect] sends.
func Describe(to chan<- *prometheus.Desc) {
	to <- objectsDesc
	to <- syncedDesc
	to <- failingDesc
	to <- stateDesc
	to <- sinceDesc
}

// Collect sends the metrics of each resource.
func (r Report) Collect(to chan<- prometheus.Metric) {
	type sum struct {
		objects int
		synced  bool
		failing map[string]bool // reasons
		worst   Status
	}
	sums := map[string]sum{}
	for _, st := range r {
		name := st.Resource.GroupResource().String()
		t, ok := sums[name]
		if !ok {
			t.failing = map[string]bool{}
		}
		t.objects, t.synced = t.objects+st.Objects, st.Synced && (t.synced || !ok)
		if st.Failing != nil {
			t.failing[discovery.ErrorReason(st.Failing)] = true
		}
		if !ok || st.State.Worse(t.worst.State) {
			t.worst = st
		}
		sums[name] = t
	}
	for name, t := range sums {
		synced := 0.0
		if t.synced {
			synced = 1
		}
		to <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(t.objects), name)
		to <- prometheus.MustNewConstMetric(syncedDesc, prometheus.GaugeValue, synced, name)
		for reason := range t.failing {
			to <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, 1, name, reason)
		}
		to <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, 1, name, string(t.worst.State), t.worst.Reason)
		to <- prometheus.MustNewConstMetric(sinceDesc, prometheus.GaugeValue, float64(t.worst.Since.UnixMilli())/1000, name)
	}
}
