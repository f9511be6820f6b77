package relay

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/refusal"
	"github.com/kuberelay/kuberelay/internal/status"
)

// Status returns the current state of the forwarder, without a verdict. It may be called before
// Run, and sends no request.
func (r *Relay) Status() status.Document {
	d := status.Empty(time.Now())
	d.Instance, d.Memory, d.Selectors, d.Work = r.Identity, memory(), r.selectors(), r.workStatus()
	d.Bus = status.Bus{Sink: r.Settings.Event.Sink, State: status.BusUnused}
	d.ConsistencyPointsOff = r.Settings.Work.ResolvedInterval == 0
	running, election := r.state.describe(&d)
	if election != nil { // otherwise the holder of the lease is not known yet
		d.Lease = r.leaseStatus(election)
	}
	if !running {
		return d
	}
	t := r.term.Load()
	d.Resources = r.resourceStatus(t)
	for group, err := range r.informers.DiscoveryFailing() {
		d.Discovery = append(d.Discovery, status.DiscoveryError{Group: group, Message: err.Error()})
	}
	slices.SortFunc(d.Discovery, func(a, b status.DiscoveryError) int { return strings.Compare(a.Group, b.Group) })
	if d.Unmatched, _ = r.unmatched(); d.WaitingFor == "" && !r.informers.Discovered() {
		d.WaitingFor = status.ForCluster
	}
	if t == nil {
		return d
	}
	d.UnwatchedDirty = unwatchedDirty(r.ledger.DirtyByResource(), d.Resources)
	d.OldestUnsent, d.Bus = moment(r.ledger.Oldest()), t.busStatus(d.Bus)
	d.Comparisons = t.comparisonStatus()
	return d
}

// describe adds the cluster and the reason why Run waits. It reports whether the informers run. e is
// nil without leader election, and before the Lease is read.
func (s *readiness) describe(d *status.Document) (running bool, e *leader.Election) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.Cluster = s.cluster
	if s.relay == nil || s.waiting != nil {
		if d.WaitingFor = status.ForBus; s.cluster == "" {
			d.WaitingFor = status.ForCluster
		}
		if why := s.why(); why != errStarting { //nolint:errorlint // never wrapped
			d.Waiting = why.Error()
		}
		d.WaitingSince = moment(s.since)
	} else if s.election != nil && !isLeaseKnown(s.election) {
		d.WaitingFor = status.ForCluster
		return true, nil
	}
	return s.relay != nil, s.election
}

// isLeaseKnown reports whether a candidate has read the Lease, or knows why it cannot.
func isLeaseKnown(e *leader.Election) bool { return e.Standing() != leader.Standing{} }

func (r *Relay) leaseStatus(e *leader.Election) *status.Lease {
	l := &status.Lease{Name: r.Settings.Leader.Namespace + "/" + r.Settings.Leader.LeaseName}
	is := e.Standing()
	l.Leading, l.Holder = is.Leading, is.Holder
	if !is.Leading && is.Holder == "" {
		l.Renewed = moment(is.Renewed)
	}
	if is.Failed != nil {
		l.RenewError = is.Failed.Error()
	}
	if is.Denied != nil {
		l.Error = is.Denied.Error()
	}
	return l
}

func (t *term) busStatus(b status.Bus) status.Bus {
	b.State = status.BusReady
	if err := t.bus.Ready(); err != nil {
		b.State, b.Error = status.BusUnavailable, err.Error()
		if at := t.unavailableSince.Load(); at != 0 {
			b.Since = moment(time.Unix(0, at))
		}
	}
	b.Risks = t.riskStatus()
	b.InFlight, b.Queued, b.ForeignEvents = t.queue.InFlight(), t.queue.Len()+t.queue.Delayed(), t.forwarder.ForeignEvents()
	return b
}

// comparisonStatus returns the failing comparisons of the bus with the cluster.
func (t *term) comparisonStatus() (all []status.ComparisonError) {
	for gr, f := range t.reconciler.Failing() {
		all = append(all, status.ComparisonError{Resource: gr.String(), Error: status.Error{Message: refusal.Explain(f.Err).Error(), Since: f.Since.UTC()}})
	}
	slices.SortFunc(all, func(a, b status.ComparisonError) int { return strings.Compare(a.Resource, b.Resource) })
	return all
}

// resourceStatus returns the state of each resource. t is nil on a standby, which does not know
// which objects the bus has.
func (r *Relay) resourceStatus(t *term) []status.Resource {
	of := byResource(append(r.informers.Status(), r.informers.NamespaceWatch()...))
	for _, s := range of {
		if since, err := r.filterFailures.First(s.Name); err != nil {
			s.FilterError = &status.Error{Message: err.Error(), Since: since.UTC()}
		}
	}
	if t != nil {
		dirty := r.ledger.DirtyByResource()
		for gr, s := range of {
			n := dirty[gr]
			s.Dirty, s.ConsistentAsOf, s.NoPointSince = &n, moment(t.resolver.ConsistentAsOf(gr)), moment(t.resolver.MissingSince(gr))
			o := t.forwarder.Outcome(gr)
			s.Truncated = o.Truncated
			if s.LastPublished = moment(o.Published); s.LastPublished != nil {
				lag := o.Lag.Seconds()
				s.LagSeconds = &lag
			}
			if o.Err != nil && n > 0 {
				object := strings.TrimPrefix(o.Key.Namespace+"/"+o.Key.Name, "/")
				s.PublishError = &status.Error{Message: object + ": " + o.Err.Error(), Since: o.Since.UTC()}
				s.PublishErrorTooLarge = errors.Is(o.Err, publish.ErrTooLarge)
			}
		}
	}
	all := []status.Resource{}
	for _, s := range of {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b status.Resource) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// unwatchedDirty returns the number of dirty objects of the resources that are not watched.
func unwatchedDirty(dirty map[schema.GroupResource]int, watched []status.Resource) (n int) {
	for gr, of := range dirty {
		if !slices.ContainsFunc(watched, func(r status.Resource) bool { return r.Name == gr.String() }) {
			n += of
		}
	}
	return n
}

// byResource combines the states of the informers into one status for each resource. It adds the informers in
// the order in which they entered their states, so that the status shows the oldest errors.
func byResource(all health.Report) map[schema.GroupResource]*status.Resource {
	slices.SortStableFunc(all, func(a, b health.Status) int { return a.Since.Compare(b.Since) })
	of := map[schema.GroupResource]*status.Resource{}
	for _, st := range all {
		gr := st.Resource.GroupResource()
		if of[gr] == nil {
			of[gr] = &status.Resource{Name: gr.String(), Version: st.Resource.Version}
		}
		addInformer(of[gr], st)
	}
	return of
}

// addInformer adds one informer to the status of its resource. The state of a resource is the
// worst state of its informers.
func addInformer(s *status.Resource, st health.Status) {
	s.Objects += st.Objects
	if st.Namespace != "" {
		addNamespace(s, st)
	}
	if s.State != "" && !st.State.Worse(health.State(s.State)) {
		return
	}
	s.State, s.Reason, s.Since, s.WatchError = string(st.State), st.Reason, moment(st.Since), nil
	if st.Failing != nil {
		s.WatchError = &status.Error{Message: st.Failing.Error(), Since: st.Since.UTC()}
	}
}

func addNamespace(s *status.Resource, st health.Status) {
	s.Namespaces++
	if st.State != health.Degraded {
		return
	}
	s.DegradedNamespaces = append(s.DegradedNamespaces, st.Namespace)
	isForbidden := st.Reason == "forbidden"
	shown := len(s.DegradedNamespaces) - s.ForbiddenNamespaces // errors of the same kind, including this one
	if isForbidden {
		s.ForbiddenNamespaces++
		shown = s.ForbiddenNamespaces
	}
	if st.Failing != nil && shown <= status.MaxNamespaceErrors {
		s.NamespaceErrors = append(s.NamespaceErrors, status.NamespaceError{
			Namespace: st.Namespace, Reason: st.Reason, Error: status.Error{Message: st.Failing.Error(), Since: st.Since.UTC()},
		})
	}
}

// selectors returns the settings that narrow the selection of objects, with their values.
func (r *Relay) selectors() []string {
	w, all := r.Settings.Watch, []string{}
	for _, s := range []struct{ name, value string }{
		{"KUBERELAY_NAMESPACES", strings.Join(w.Namespaces, ",")}, {"KUBERELAY_EXCLUDE_NAMESPACES", strings.Join(w.ExcludeNamespaces, ",")},
		{"KUBERELAY_NAMESPACE_SELECTOR", w.NamespaceSelector}, {"KUBERELAY_LABEL_SELECTOR", w.LabelSelector},
		{"KUBERELAY_FIELD_SELECTOR", w.FieldSelector}, {"KUBERELAY_FILTER", r.Settings.Content.Filter},
	} {
		if s.value != "" {
			all = append(all, s.name+"="+s.value)
		}
	}
	return all
}

// memory returns the memory of the runtime, and its limit.
func memory() status.Memory {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	m := status.Memory{Used: samples[0].Value.Uint64() - samples[1].Value.Uint64()}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		m.Limit = uint64(max(0, limit))
	}
	return m
}

// moment returns a time in UTC, or nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// report logs the progress of long work, unmatched entries of settings, and risks of the bus,
// until ctx ends. It sends no request.
func (r *Relay) report(ctx context.Context) {
	sample, compare := time.NewTicker(longwork.Interval), time.NewTicker(unmatchedPoll)
	defer sample.Stop()
	defer compare.Stop()
	var known []status.Unmatched
	loggedRisks := map[string]bool{} // by setting
	for {
		select {
		case <-ctx.Done():
			return
		case <-sample.C:
			r.work.Sample()
		case <-compare.C:
			noteRisks(r.Logger, loggedRisks, r.term.Load().risks())
			if now, complete := r.allUnmatched(); complete {
				noteUnmatched(r.Logger, known, now)
				known = now
			}
		}
	}
}

func (r *Relay) workStatus() []status.Work {
	all := []status.Work{}
	for _, p := range r.work.Progress() {
		w := status.Work{Work: p.Work, Unit: p.Unit, Since: p.Since.UTC(), Done: p.Done, Growing: p.Growing, PerSecond: p.PerSecond}
		if p.Total > 0 {
			w.Total = &p.Total
		}
		if p.Known {
			seconds := int64(p.Left.Seconds())
			w.SecondsLeft = &seconds
		}
		all = append(all, w)
	}
	return all
}
