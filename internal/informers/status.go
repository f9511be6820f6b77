package informers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/informers/health"
)

// Status returns the state of every informer.
func (s *Set) Status() health.Report { return s.report(s.lenOf) }

// Health is like Status, but without the number of objects, which might take a long time to count.
func (s *Set) Health() health.Report { return s.report(func(*informer) int { return 0 }) }

func (s *Set) report(count func(*informer) int) health.Report {
	var all health.Report
	s.eachWatched(func(w *watched) { all = append(all, w.statusOf(count)...) })
	slices.SortFunc(all, func(a, b health.Status) int {
		return cmp.Or(cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}

// NamespaceWatch returns the state of the watch that the selection of namespaces needs, while this watch
// fails. It returns nil otherwise.
func (s *Set) NamespaceWatch() health.Report { return health.OfNamespaces(s.namespaces) }

// Ready returns nil when discovery has succeeded, the informers are ready, and every resource to which
// objects refer has informers. See [health.Report.Ready].
func (s *Set) Ready() error {
	watched := s.watched.All() // before Health, so that Health includes all of them
	s.mu.RLock()
	answered, failed := s.answer != nil, s.failed
	s.mu.RUnlock()
	switch {
	case answered:
		if err := s.Health().Ready(); err != nil {
			return err
		}
		for _, r := range s.references.Resources() { // the listed objects might refer to more resources
			if watched[r.GroupResource()] == nil {
				return fmt.Errorf("not synced: %s", r.GroupResource())
			}
		}
		return nil
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
	dirtyDesc  = prometheus.NewDesc("kuberelay_dirty_objects", "Objects whose current state or delete the bus has not acknowledged. If it is 0 and /readyz returns 200, every known change is published. After a start, the comparison that follows the first list finds missed deletes. While objects change all the time, it is rarely 0: alert on kuberelay_oldest_unsent_change_seconds. A standby has no value.", nil, nil)
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
	append(c.set.Status(), c.set.NamespaceWatch()...).Collect(to)
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
