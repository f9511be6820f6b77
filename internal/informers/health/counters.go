package health

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Counters are the counters of informers and discovery.
type Counters struct {
	Lists, Watches, Changes, Discoveries, Stops, References *prometheus.CounterVec
}

// NewCounters returns counters that it has registered.
func NewCounters(r prometheus.Registerer) *Counters {
	counter := func(name, label, help string) *prometheus.CounterVec {
		return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &Counters{
		Lists: counter("kuberelay_informer_lists_total", "resource",
			"List requests to the API server, one for each page, by resource; a watch that begins with a list counts as a watch. A steady rate means that watches fail: see kuberelay_informer_failing."),
		Watches: counter("kuberelay_informer_watches_total", "resource",
			"Watches opened at the API server, by resource. The API server ends a watch after 5 to 10 minutes; a much higher rate means that watches fail: see the log."),
		Changes: counter("kuberelay_informer_watch_events_total", "resource",
			"Changes received by watches, by resource. They include the objects of a watch that begins with a list, but no bookmarks or errors. Use the rate to find the resources that cost most, and send less of them with KUBERELAY_FILTER or KUBERELAY_DROP_FIELDS."),
		Discoveries: counter("kuberelay_discovery_total", "result",
			"Discovery requests by result: changed, unchanged (the ETag matched), failed. If failed grows, see kuberelay_discovery_failing."),
		Stops: counter("kuberelay_informer_stops_total", "reason",
			"Informers stopped while the forwarder runs, by reason: not_served, not_selected, not_watchable, moved (restarted in another version). Needs no action; the log names the resource."),
		References: counter("kuberelay_references_exceeded_total", "resource",
			"Object states with more than 1,000 references, by resource. KUBERELAY_FOLLOW follows only the first 1,000. The log names the object."),
	}
}

// Opened counts a watch of a resource. It also creates the list counter of the resource, so that the
// counter is 0 before the first list.
func (c *Counters) Opened(resource string) {
	c.Lists.WithLabelValues(resource)
	c.Watches.WithLabelValues(resource).Inc()
}

// Forget drops the series of a resource that is no longer watched. If the resource returns, its
// series start at 0.
func (c *Counters) Forget(resource string) {
	c.Lists.DeleteLabelValues(resource)
	c.Watches.DeleteLabelValues(resource)
	c.Changes.DeleteLabelValues(resource)
	c.References.DeleteLabelValues(resource)
}
