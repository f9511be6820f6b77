package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/status"
	"github.com/kuberelay/kuberelay/internal/trace"
)

// Trace returns the current state of one object in this forwarder. It may be called before Run, and
// sends no request.
func (r *Relay) Trace(k event.Key) trace.Forwarder {
	var d status.Document
	running, election := r.state.describe(&d)
	f := trace.Forwarder{Role: trace.Starting, Cluster: d.Cluster, Error: d.Waiting}
	if d.WaitingFor == status.ForBus && d.Waiting != "" {
		f.Error, f.BusUnavailable = "", &trace.Error{Message: d.Waiting}
	}
	var is leader.Standing
	if election != nil {
		is = election.Standing()
	}
	f.Holder = is.Holder
	if !running {
		return f
	}
	t := r.term.Load()
	switch {
	case t != nil:
		f.Role = trace.Leading
	case d.WaitingFor == "":
		if f.Role = trace.Standby; is.Failed != nil {
			f.Error = is.Failed.Error()
		}
	}
	r.traceWatch(k, &f)
	if t != nil {
		t.trace(k, &f)
	}
	return f
}

// traceWatch adds the selection and the watch of an object.
func (r *Relay) traceWatch(k event.Key, f *trace.Forwarder) {
	gr, of := k.GroupResource(), r.informers.DescribeResource(k.GroupResource())
	o := r.informers.DescribeObject(k)
	decision, _ := r.informers.Decision(gr)
	s := &trace.Selection{From: trace.FromForwarder, Selected: trace.NotSelected, Selector: decision.Selector}
	f.Selection = s
	st, watched := r.informerOf(k)
	switch {
	case of.Catalog == nil:
		s.Selected, s.Detail = trace.MaybeSelected, "discovery has not completed yet"
	case !of.Watched && !of.Catalog.Shows(gr):
		s.Selected, s.Detail = trace.MaybeSelected, "the cluster does not serve "+gr.String()
	case !of.Watched && decision.ExcludedBy != "":
		s.Detail = "KUBERELAY_EXCLUDE_RESOURCES includes " + decision.ExcludedBy
	case !of.Watched && decision.Reason != "":
		s.Detail = gr.String() + ": " + decision.Reason.Sentence()
	case !of.Watched:
		s.Detail = "KUBERELAY_RESOURCES does not select " + gr.String()
	case !o.NamespacesKnown || !o.ReferencesKnown:
		s.Selected, s.Detail = trace.MaybeSelected, "the selected namespaces or references are not known yet"
	case !o.Selected:
		if s.Detail = NamespaceDetail(r.Settings.Watch, k.Namespace); s.Detail == "" {
			s.Detail = "no selected object refers to it (KUBERELAY_FOLLOW)"
		}
	case watched && st.Reason == "forbidden":
		s.Selected, s.Detail = trace.IsForbidden, st.Failing.Error()
	case o.Live != nil && o.Live.Unselected:
		s.Detail, s.Filter = "KUBERELAY_FILTER is false", trace.FilterFalse
	case o.Live != nil && o.Live.FilterFailed:
		s.Selected, s.Detail, s.Filter = trace.IsSelected, "KUBERELAY_FILTER fails for the object, so the object is published", trace.FilterFailed
	default:
		s.Selected = trace.IsSelected
		if o.Live != nil && r.shape.HasFilter() {
			s.Filter = trace.FilterTrue
		}
	}
	if o.Filtered {
		f.LabelSelector, f.FieldSelector = r.Settings.Watch.LabelSelector, r.Settings.Watch.FieldSelector
	}
	if !watched {
		return
	}
	w := &trace.Watch{State: string(st.State), Reason: st.Reason, Object: trace.Absent}
	if f.Watch = w; st.Failing != nil {
		w.Error = &trace.Error{Message: st.Failing.Error(), Since: moment(st.Since)}
	}
	switch {
	case o.Live != nil:
		w.Object, w.UID, w.Version = trace.Exists, string(o.Live.UID), o.Live.ResourceVersion
	case !o.Synced:
		w.Object = trace.Unknown
	}
}

// informerOf returns the state of the informer that covers a key.
func (r *Relay) informerOf(k event.Key) (health.Status, bool) {
	all := r.informers.Status()
	i := slices.IndexFunc(all, func(s health.Status) bool {
		return s.Resource.GroupResource() == k.GroupResource() && (s.Namespace == "" || s.Namespace == k.Namespace)
	})
	if i < 0 {
		return health.Status{}, false
	}
	return all[i], true
}

// trace adds the information that only the leader has.
func (t *term) trace(k event.Key, f *trace.Forwarder) {
	d := t.forwarder.Describe(k)
	f.Checkpoint = t.traceEntry(d.Acked)
	if since, dirty := t.ledger.DirtySince(k); dirty {
		f.Unsent = moment(since)
	}
	place, failures := t.queue.Find(k)
	f.Queue, f.Attempts = string(place), failures
	f.Decision, f.Unpublishable = string(d.Reason), d.Unpublishable
	if d.Err != nil {
		f.PublishError = &trace.PublishError{Message: d.Err.Error(), Since: moment(d.Since), OtherObject: !d.Own}
	}
	if b := t.busStatus(status.Bus{}); b.State == status.BusUnavailable {
		f.BusUnavailable = &trace.Error{Message: b.Error, Since: b.Since}
	}
}

func (t *term) traceEntry(a event.Acked) *trace.Entry {
	e := &trace.Entry{State: trace.Exists, UID: a.UID, Version: a.ResourceVersion, Foreign: a.Foreign}
	switch {
	case a.UID == "":
		e.State = trace.Absent
	case a.Deselected:
		e.State = trace.Deselected
	case a.Deleted:
		e.State = trace.Deleted
	}
	if a.Position > 0 {
		e.Position = fmt.Sprint(a.Position)
		if t.Settings.Event.Sink == config.SinkKafka {
			e.Position = fmt.Sprintf("%d:%d", publish.Partition(a.Position), publish.Offset(a.Position))
		}
	}
	if a.Time > 0 {
		e.Time = moment(time.UnixMilli(a.Time))
	}
	return e
}

// NamespaceDetail describes which setting excludes a namespace. It returns "" if no setting does.
func NamespaceDetail(w config.Watch, namespace string) string {
	switch {
	case namespace == "":
		return ""
	case slices.Contains(w.ExcludeNamespaces, namespace):
		return "KUBERELAY_EXCLUDE_NAMESPACES includes " + namespace
	case len(w.Namespaces) > 0 && !slices.Contains(w.Namespaces, namespace):
		return "KUBERELAY_NAMESPACES does not include " + namespace
	case w.NamespaceSelector != "":
		return fmt.Sprintf("KUBERELAY_NAMESPACE_SELECTOR %s does not match the labels of %s", w.NamespaceSelector, namespace)
	}
	return ""
}
