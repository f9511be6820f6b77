package informers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kuberelay/kuberelay/internal/informers/health"
)

// Status returns the state of every informer.
func (s *Set) Status() health.Report { return s.report(s.lenOf) }

// Health is like Status, but without the number of objects, which may take a long time to count.
func (s *Set) Health() health.Report { return s.report(func(*informer) int { return 0 }) }

func (s *Set) report(count func(*informer) int) health.Report {
	var all health.Report
	s.eachWatched(func(w *watched) { all = append(all, w.statusOf(count)...) })
	slices.SortFunc(all, func(a, b health.Status) int {
		return cmp.Or(cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}

// Ready returns nil when discovery has succeeded and the informers are ready. See
// [health.Report.Ready].
func (s *Set) Ready() error {
	s.mu.RLock()
	answered, failed := s.answer != nil, s.failed
	s.mu.RUnlock()
	switch {
	case answered:
		return s.Health().Ready()
	case failed != nil:
		return fmt.Errorf("discovery failed: %w", failed)
	default:
		return errors.New("discovery has not completed yet")
	}
}

// collector computes metrics from the status at each scrape.
type collector struct{ set *Set }

var (
	groupDesc  = prometheus.NewDesc("kuberelay_discovery_failing", "1 for each API group whose discovery fails; core is the core group, * means that all discovery fails. Meanwhile, no informer of the group starts or stops. Repair the back end of its APIService.", []string{"group"}, nil)
	oldestDesc = prometheus.NewDesc("kuberelay_oldest_unsent_change_seconds", "Age in seconds of the oldest change that the bus has not acknowledged, 0 if there is none. Alert if it keeps growing: the bus is unavailable, is full, or refuses an object; see the log.", nil, nil)
	dirtyDesc  = prometheus.NewDesc("kuberelay_dirty_objects", "Objects whose current state or delete the bus has not acknowledged. If it is 0 and /readyz returns 200, everything is published. While objects change all the time, it is rarely 0: alert on kuberelay_oldest_unsent_change_seconds. A standby has no value.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	health.Describe(to)
	to <- groupDesc
	to <- dirtyDesc
	to <- oldestDesc
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.set.Status().Collect(to)
	for group := range c.set.DiscoveryFailing() {
		to <- prometheus.MustNewConstMetric(groupDesc, prometheus.GaugeValue, 1, group)
	}
	if c.set.terms.isStandby() {
		return // a standby does not know what the bus has acknowledged
	}
	to <- prometheus.MustNewConstMetric(dirtyDesc, prometheus.GaugeValue, float64(c.set.ledger.DirtyLen()))
	age := 0.0
	if oldest := c.set.ledger.Oldest(); !oldest.IsZero() {
		age = max(0, c.set.config.Now().Sub(oldest).Seconds())
	}
	to <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// metrics contains the counters. [collector] provides the gauges of the informers' state.
type metrics struct {
	lists, watches, changes, discoveries, stops, references *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, label, help string) *prometheus.CounterVec {
		return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &metrics{
		lists: counter("kuberelay_informer_lists_total", "resource",
			"List requests to the API server, one for each page, by resource; a watch that begins with a list counts as a watch. A steady rate means that watches fail: see kuberelay_informer_failing."),
		watches: counter("kuberelay_informer_watches_total", "resource",
			"Watches opened at the API server, by resource. The API server ends a watch after 5 to 10 minutes; a much higher rate means that watches fail: see the log."),
		changes: counter("kuberelay_informer_watch_events_total", "resource",
			"Changes received by watches, by resource. They include the objects of a watch that begins with a list, but no bookmarks or errors. Use the rate to find the resources that cost most, and send less of them with KUBERELAY_FILTER or KUBERELAY_DROP_FIELDS."),
		discoveries: counter("kuberelay_discovery_total", "result",
			"Discovery requests by result: changed, unchanged (the ETag matched), failed. If failed grows, see kuberelay_discovery_failing."),
		stops: counter("kuberelay_informer_stops_total", "reason",
			"Informers stopped while the forwarder runs, by reason: not_served, not_selected, not_watchable, moved (restarted in another version). Needs no action; the log names the resource."),
		references: counter("kuberelay_references_exceeded_total", "resource",
			"Object states with more than 1,000 references, by resource. KUBERELAY_FOLLOW follows only the first 1,000. The log names the object."),
	}
}

// opened counts a watch of a resource. It also creates the list counter of the resource, so that the
// counter is 0 before the first list.
func (m *metrics) opened(resource string) {
	m.lists.WithLabelValues(resource)
	m.watches.WithLabelValues(resource).Inc()
}

// forget drops the series of a resource that is no longer watched. If the resource returns, its
// series start at 0.
func (m *metrics) forget(resource string) {
	m.lists.DeleteLabelValues(resource)
	m.watches.DeleteLabelValues(resource)
	m.changes.DeleteLabelValues(resource)
}
