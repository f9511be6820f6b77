package informers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// Status is the state of one informer.
type Status struct {
	Resource  event.Resource
	Namespace string // "" for all namespaces
	State     State
	Reason    string // why the informer is degraded, one of a fixed set; otherwise ""
	Since     time.Time
	Synced    bool // the first list is complete, even if the informer is degraded now
	Objects   int
	Failing   error // the error of the last list or watch, nil for none
}

// Status returns the state of every informer, ordered by group, resource and namespace.
func (s *Set) Status() []Status { return s.status(s.lenOf) }

func (s *Set) status(count func(*informer) int) []Status {
	var all []Status
	s.eachWatched(func(w *watched) { all = append(all, w.statusOf(count)...) })
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}

// Ready returns nil when discovery has succeeded and every informer has synced. It ignores
// informers that RBAC forbids, unless RBAC forbids all of them. Its error names the resources that
// are not ready.
func (s *Set) Ready() error {
	s.mu.RLock()
	answered, failed := s.answer != nil, s.failed
	s.mu.RUnlock()
	if !answered {
		if failed != nil {
			return fmt.Errorf("discovery failed: %w", failed)
		}
		return errors.New("discovery has not answered yet")
	}
	var waiting []string
	var forbidden error
	readable := 0
	for _, st := range s.status(func(*informer) int { return 0 }) {
		switch {
		case !apierrors.IsForbidden(st.Failing):
			readable++
		case forbidden == nil:
			forbidden = st.Failing
		}
		if !st.Synced && !apierrors.IsForbidden(st.Failing) {
			what := st.Resource.GroupResource().String()
			if st.Failing != nil {
				what += " (" + st.Failing.Error() + ")"
			}
			waiting = append(waiting, what)
		}
	}
	switch {
	case len(waiting) > 0:
	case forbidden != nil && readable == 0:
		return fmt.Errorf("access denied to all %d selected resources; grant get, list and watch, or name the readable namespaces in KUBERELAY_NAMESPACES: %w", len(s.Watched()), forbidden)
	default:
		return nil
	}
	const show = 3
	more := ""
	if len(waiting) > show {
		more = fmt.Sprintf(" and %d more", len(waiting)-show)
	}
	return fmt.Errorf("not synced: %s%s", strings.Join(waiting[:min(show, len(waiting))], ", "), more)
}

// Listing returns the number of resources whose first list is in progress, and the total number of
// watched resources.
func (s *Set) Listing() (listing, all int) {
	return s.countResources(func(st Status) bool { return st.State == Starting })
}

// Forbidden returns the number of resources to which access is denied in at least one namespace, and
// the total number of watched resources.
func (s *Set) Forbidden() (forbidden, all int) {
	return s.countResources(func(st Status) bool { return apierrors.IsForbidden(st.Failing) })
}

// Failing returns the number of resources whose last list or watch failed for a reason other than
// denied access, the total number of watched resources, and one of the errors.
func (s *Set) Failing() (failing, all int, err error) {
	failing, all = s.countResources(func(st Status) bool {
		is := st.Failing != nil && !apierrors.IsForbidden(st.Failing)
		if is && err == nil {
			err = st.Failing
		}
		return is
	})
	return failing, all, err
}

// countResources counts the resources with at least one informer that matches, and all resources.
func (s *Set) countResources(matches func(Status) bool) (n, all int) {
	found := map[schema.GroupResource]bool{}
	for _, st := range s.status(func(*informer) int { return 0 }) {
		gr := st.Resource.GroupResource()
		found[gr] = found[gr] || matches(st)
	}
	for _, is := range found {
		if is {
			n++
		}
	}
	return n, len(found)
}

// collector computes metrics from the status at each scrape.
type collector struct{ set *Set }

var (
	objectsDesc = prometheus.NewDesc("kuberelay_informer_objects", "Objects in the cache of the informer. Multiply by the size of the objects to estimate memory: see docs/sizing.md.", []string{"resource"}, nil)
	syncedDesc  = prometheus.NewDesc("kuberelay_informer_synced", "1 if the first list of the resource is complete in every namespace, else 0. If it stays 0, see kuberelay_informer_failing and the log.", []string{"resource"}, nil)
	failingDesc = prometheus.NewDesc("kuberelay_informer_failing", "1 if the last list or watch of the resource failed, by reason. For forbidden, grant get, list and watch; for the other reasons, see the log.", []string{"resource", "reason"}, nil)
	stateDesc   = prometheus.NewDesc("kuberelay_informer_state", "1 for the state of the informer of the resource: starting, synced or degraded, with the reason; with several namespaces, the worst. Alert on degraded: see docs/resources.md, States.", []string{"resource", "state", "reason"}, nil)
	sinceDesc   = prometheus.NewDesc("kuberelay_informer_state_since_timestamp_seconds", "Unix time at which the informer of the resource entered its state. Subtract it from the current time to see how long the state has lasted.", []string{"resource"}, nil)
	groupDesc   = prometheus.NewDesc("kuberelay_discovery_failing", "1 for each API group whose discovery fails; * if all discovery fails. Nothing of such a group is started, stopped or deleted. Repair the back end of its APIService.", []string{"group"}, nil)
	oldestDesc  = prometheus.NewDesc("kuberelay_oldest_unsent_change_seconds", "Age in seconds of the oldest change that the bus has not acknowledged, 0 if there is none. Alert if it keeps growing: the bus is away, is full, or refuses an object; see the log.", nil, nil)
	dirtyDesc   = prometheus.NewDesc("kuberelay_dirty_objects", "Objects whose current state the bus has not acknowledged; 0 means that everything is published. While objects change all the time, it is rarely 0: alert on kuberelay_oldest_unsent_change_seconds.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	to <- objectsDesc
	to <- syncedDesc
	to <- failingDesc
	to <- stateDesc
	to <- sinceDesc
	to <- groupDesc
	to <- dirtyDesc
	to <- oldestDesc
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	type sum struct {
		objects int
		synced  bool
		failing string
		worst   Status
	}
	sums := map[string]sum{}
	for _, st := range c.set.Status() {
		name := st.Resource.GroupResource().String()
		t, ok := sums[name]
		t.objects, t.synced = t.objects+st.Objects, st.Synced && (t.synced || !ok)
		if st.Failing != nil {
			t.failing = discovery.ErrorReason(st.Failing)
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
		if t.failing != "" {
			to <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, 1, name, t.failing)
		}
		to <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, 1, name, string(t.worst.State), t.worst.Reason)
		to <- prometheus.MustNewConstMetric(sinceDesc, prometheus.GaugeValue, float64(t.worst.Since.UnixMilli())/1000, name)
	}
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
	lists, watches *prometheus.CounterVec
	changes        *prometheus.CounterVec
	discoveries    *prometheus.CounterVec
	stops          *prometheus.CounterVec
	references     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		lists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_informer_lists_total",
			Help: "List requests to the API server, one for each page, by resource; a watch that begins with a list counts as a watch. A steady rate means that watches fail: see kuberelay_informer_failing.",
		}, []string{"resource"}),
		watches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_informer_watches_total",
			Help: "Watches opened at the API server, by resource. The API server ends a watch after 5 to 10 minutes; a much higher rate means that watches fail: see the log.",
		}, []string{"resource"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_informer_watch_events_total",
			Help: "Changes received by watches, by resource. The objects of a watch that begins with a list count; bookmarks and errors don't. Use the rate to find the resources that cost most, and KUBERELAY_FILTER or KUBERELAY_DROP_FIELDS to send less of them.",
		}, []string{"resource"}),
		discoveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_discovery_total",
			Help: "Discovery requests by result: changed, unchanged (the ETag matched), failed. If failed grows, see kuberelay_discovery_failing.",
		}, []string{"result"}),
		stops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_informer_stops_total",
			Help: "Informers stopped while the forwarder runs, by reason: not_served, not_selected, not_watchable, moved (restarted in another version). Needs no action; the log names the resource.",
		}, []string{"reason"}),
		references: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_references_exceeded_total",
			Help: "Object states with more than the 1000 references that KUBERELAY_FOLLOW reads, by resource. The other references aren't followed. The log names the object.",
		}, []string{"resource"}),
	}
	r.MustRegister(m.lists, m.watches, m.changes, m.discoveries, m.stops, m.references)
	return m
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
