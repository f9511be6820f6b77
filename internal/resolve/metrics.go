package resolve

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

var resolvedAgeDesc = prometheus.NewDesc("kuberelay_resolved_age_seconds", "Age in seconds of the newest state of the cluster that the bus has in full; before the first consistency point of the resource, the time since its first sync. Bookmarks of the API server advance it about once a minute. Alert if it keeps growing: a change does not reach the bus, the comparison of the bus with the cluster fails, or the watch hangs.", []string{"resource"}, nil)

// Describe implements [prometheus.Collector].
func (r *Resolver) Describe(to chan<- *prometheus.Desc) {
	to <- resolvedAgeDesc
	r.published.Describe(to)
}

// Collect implements [prometheus.Collector].
func (r *Resolver) Collect(to chan<- prometheus.Metric) {
	r.published.Collect(to)
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.resources))
	r.mu.Unlock()
	for _, gr := range all {
		at := r.ConsistentAsOf(gr)
		if at.IsZero() {
			at = r.MissingSince(gr)
		}
		if !at.IsZero() {
			to <- prometheus.MustNewConstMetric(resolvedAgeDesc, prometheus.GaugeValue, r.Now().Sub(at).Seconds(), gr.String())
		}
	}
}
