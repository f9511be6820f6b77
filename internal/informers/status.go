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

	"github.com/kuberelay/kuberelay/internal/event"
)

// Status is the state of one informer.
type Status struct {
	Resource  event.Resource
	Namespace string // "" for all
	State     State
	Reason    string // why it is degraded or stopped, one of a bounded set; else ""
	Since     time.Time
	Synced    bool // its first list has been handed on, also where it is degraded now
	Objects   int
	Failing   error // why the last list or watch failed, nil if it did not
}

// Status gives the state of every informer, ordered by group, resource and
// namespace. Those that were stopped are not among them, see [Set.Stopped].
func (s *Set) Status() []Status {
	var all []Status
	s.eachWatched(func(w *watched) { all = append(all, s.statusOf(w)...) })
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}

// Ready is nil when discovery has answered and every informer has synced, those
// that are forbidden left out, unless all are: the others go on without them. Else it
// says what is awaited.
func (s *Set) Ready() error {
	s.mu.RLock()
	answered, failed := s.answer != nil, s.failed
	s.mu.RUnlock()
	if !answered {
		if failed != nil {
			return fmt.Errorf("the API server cannot be asked what it serves: %w", failed)
		}
		return errors.New("discovery has not answered yet")
	}
	var waiting []string
	var forbidden error
	readable := 0
	for _, st := range s.Status() {
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
		return fmt.Errorf("nothing of what is selected may be read; let us get, list and watch it: %w", forbidden)
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

// collector makes metrics of the status when they are asked for.
type collector struct{ set *Set }

var (
	objectsDesc = prometheus.NewDesc("kuberelay_informer_objects", "Objects in the indexer.", []string{"resource"}, nil)
	syncedDesc  = prometheus.NewDesc("kuberelay_informer_synced", "1 if the first list of the resource has been handed on, in every namespace.", []string{"resource"}, nil)
	failingDesc = prometheus.NewDesc("kuberelay_informer_failing", "1 if the last list or watch of the resource failed, by reason.", []string{"resource", "reason"}, nil)
	stateDesc   = prometheus.NewDesc("kuberelay_informer_state", "1 for the state that the informer of the resource is in: starting, synced or degraded, and why; of several namespaces the worst.", []string{"resource", "state", "reason"}, nil)
	sinceDesc   = prometheus.NewDesc("kuberelay_informer_state_since_timestamp_seconds", "When the informer of the resource came into its state.", []string{"resource"}, nil)
	groupDesc   = prometheus.NewDesc("kuberelay_discovery_failing", "1 for each API group whose discovery fails, so that nothing is concluded of it; * where nothing can be discovered.", []string{"group"}, nil)
	dirtyDesc   = prometheus.NewDesc("kuberelay_dirty_objects", "Objects whose present state the bus has not acknowledged.", nil, nil)
)

// Describe is part of [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	to <- objectsDesc
	to <- syncedDesc
	to <- failingDesc
	to <- stateDesc
	to <- sinceDesc
	to <- groupDesc
	to <- dirtyDesc
}

// Collect is part of [prometheus.Collector].
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
			t.failing = reason(st.Failing)
		}
		if !ok || st.State.worse(t.worst.State) {
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
	if c.set.terms.resting() {
		return // what the bus has acknowledged is not known
	}
	to <- prometheus.MustNewConstMetric(dirtyDesc, prometheus.GaugeValue, float64(c.set.dirty.len()))
}

// reason is a bounded label, "" for no error.
func reason(err error) string {
	switch {
	case err == nil:
		return ""
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsNotFound(err):
		return "not_found"
	case apierrors.IsUnauthorized(err):
		return "unauthorized"
	default:
		return "failing"
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
