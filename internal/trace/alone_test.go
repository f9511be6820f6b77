package trace

import (
	"testing"
	"time"
)

// TestJudged verifies the verdict of a forwarder without the API server and the bus.
func TestJudged(t *testing.T) {
	type change = func(*Forwarder)
	for _, c := range []struct {
		name   string
		change change
		reason Reason
		says   string
	}{
		{"published", func(*Forwarder) {}, OnBus, "on the bus: version 812"},
		{"not yet", func(f *Forwarder) {
			f.Watch.Version, f.Unsent, f.Queue, f.Decision = "815", ago(time.Minute), "in_flight", "updated"
		}, Waiting, "waiting: the event is on its way to the bus for 60s; the bus has version 812"},
		{"refused", func(f *Forwarder) {
			f.Watch.Version, f.Unsent, f.PublishError = "815", ago(time.Minute), &PublishError{Message: "maximum bytes exceeded"}
		}, Refused, "waiting: the bus has rejected it: maximum bytes exceeded; the bus has version 812"},
		{"bus unavailable", func(f *Forwarder) { f.Watch.Version, f.BusUnavailable = "815", &Error{Message: "dial tcp"} }, BusUnavailable,
			"waiting: bus unavailable: dial tcp; the bus has version 812"},
		{"deleted", func(f *Forwarder) { f.Watch.Object, f.Watch.UID, f.Checkpoint.State = Absent, "", Deleted }, DeleteOnBus, "deleted, and the bus has the delete"},
		{"nothing of that name", func(f *Forwarder) { f.Watch.Object, f.Watch.UID, f.Checkpoint = Absent, "", &Entry{State: Absent} }, NoObject,
			"unknown object: neither the API server nor the bus has deployments.apps shop/web"},
		{"filtered", func(f *Forwarder) {
			f.Selection.Selected, f.Selection.Detail, f.Checkpoint = NotSelected, "KUBERELAY_FILTER is false", &Entry{State: Absent}
		}, Deselection, "not selected: KUBERELAY_FILTER is false; the bus has no event of it"},
		{"not watched", func(f *Forwarder) {
			f.Selection.Selected, f.Selection.Detail, f.Watch, f.Checkpoint = NotSelected, "KUBERELAY_RESOURCES does not select pods", nil, &Entry{State: Absent}
		}, Deselection, "not selected: KUBERELAY_RESOURCES does not select pods"},
		{"forbidden", func(f *Forwarder) {
			f.Selection.Selected, f.Selection.Detail, f.Watch.Error = IsForbidden, "access denied", &Error{Message: "access denied"}
		}, Forbidden, "not watched: access denied"},
		{"the watch fails", func(f *Forwarder) { f.Watch.State, f.Watch.Error = "degraded", &Error{"no leader", ago(time.Hour)} }, CannotTell,
			"unknown: the current state cannot be determined: the watch of deployments.apps fails for 60m: no leader; the bus has version 812"},
		{"first list", func(f *Forwarder) { f.Watch.Object, f.Checkpoint = Unknown, &Entry{State: Absent} }, CannotTell,
			"unknown: the current state cannot be determined: the first list of deployments.apps is not complete; the bus has no event of it"},
		{"standby", func(f *Forwarder) { f.Role, f.Holder, f.Checkpoint = Standby, "kuberelay-1", nil }, CannotTell,
			"unknown: the state on the bus cannot be determined: this forwarder is a standby; ask the leader, kuberelay-1"},
		{"nobody leads", func(f *Forwarder) { f.Role, f.Error, f.Checkpoint = Standby, "no space", nil }, CannotTell,
			"unknown: the state on the bus cannot be determined: this forwarder is a standby; nobody is known to lead: no space"},
		{"starting", func(f *Forwarder) { *f = Forwarder{Role: Starting, Error: "no route"} }, CannotTell,
			"unknown: the current state cannot be determined: the forwarder is starting: no route"},
		{"foreign event", func(f *Forwarder) { f.Checkpoint.Foreign = true }, CannotTell,
			"unknown: the state on the bus cannot be determined: the last event on the bus is from another writer; the forwarder is comparing it with the cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := well()
			f := d.Forwarder
			selection := d.Selection
			f.Selection = &selection
			c.change(&f)
			got := f.Judged(d.Object, now)
			if got.Verdict == nil || got.Verdict.Reason != c.reason || got.Verdict.Summary != c.says {
				t.Errorf("got %+v, want %s: %s", got.Verdict, c.reason, c.says)
			}
		})
	}
}
