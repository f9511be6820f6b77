package relay

import (
	"context"
	"time"

	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/status"
)

// minResync is the number of keys from which on a resync is long work.
const minResync = 1000

// works are the kinds of long work, in the order of a start.
func (r *Relay) works() []longwork.Work {
	return []longwork.Work{
		{Name: "takeover", Unit: "records", Measure: r.takeover.Measure},
		{Name: "checkpoint_load", Unit: "messages", Measure: r.loading.Measure},
		{Name: "list", Unit: "resources", Measure: r.measureLists},
		{Name: "first_sync", Unit: "objects", Measure: r.measureFirstSync},
		{Name: "resend", Unit: "objects", Measure: r.measureResend},
		{Name: "resync", Unit: "objects", Measure: r.measureResync},
	}
}

// measureLists measures the first lists of all resources.
func (r *Relay) measureLists() (longwork.Amount, bool) {
	if r.state.running() == nil {
		return longwork.Amount{}, false
	}
	listing, all := r.informers.Listing()
	return longwork.Amount{Done: int64(all - listing), Total: int64(all)}, listing > 0
}

// measureFirstSync measures the objects that existed before the first sync of their resource.
func (r *Relay) measureFirstSync() (longwork.Amount, bool) {
	if r.state.running() == nil || r.term.Load() == nil {
		return longwork.Amount{}, false
	}
	objects, left, listing := r.informers.FirstSync()
	return longwork.Amount{Done: int64(objects - left), Total: int64(objects), Growing: listing}, left > 0 || listing && objects > 0 // the bus can be faster than a list
}

// measureResend measures the changes that waited for the bus while it was away.
func (r *Relay) measureResend() (longwork.Amount, bool) {
	t := r.term.Load()
	if t == nil {
		return longwork.Amount{}, false
	}
	o := t.outage.Load()
	if o == nil {
		return longwork.Amount{}, false
	}
	left := t.informers.DirtyBetween(o.began, o.ended)
	return longwork.Amount{Done: int64(o.waiting - left), Total: int64(o.waiting)}, left > 0
}

// measureResync measures the comparison of every object with the checkpoint: from time to time,
// after a restart, and when the bus has lost something.
func (r *Relay) measureResync() (longwork.Amount, bool) {
	t := r.term.Load()
	if t == nil {
		return longwork.Amount{}, false
	}
	if _, is := r.measureFirstSync(); is {
		return longwork.Amount{}, false // the keys are the same
	}
	added, waiting := t.queue.Background()
	return longwork.Amount{Done: added - waiting, Total: added}, added >= minResync && waiting > 0
}

// report logs how far long work has come, what matches nothing, and how the bus can lose events, until ctx ends. It sends no
// request.
func (r *Relay) report(ctx context.Context) {
	sample, compare := time.NewTicker(longwork.Interval), time.NewTicker(unmatchedPoll)
	defer sample.Stop()
	defer compare.Stop()
	var known []status.Unmatched
	risks := map[string]bool{} // that are logged
	for {
		select {
		case <-ctx.Done():
			return
		case <-sample.C:
			r.work.Sample()
		case <-compare.C:
			noteRisks(r.Logger, risks, r.term.Load().risks())
			if now, complete := r.allUnmatched(); complete {
				noteUnmatched(r.Logger, known, now)
				known = now
			}
		}
	}
}

// workStatus returns the long work that is going on.
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
