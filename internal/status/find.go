package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// find returns the findings of a document.
func (d Document) find() []Finding {
	all := []Finding{} // not null in JSON
	// The headline is the message without errors and ages, or "" if the message has neither.
	add := func(r Reason, l Level, since *time.Time, headline, format string, args ...any) {
		f := found(r, l, terminal.OneLine(fmt.Sprintf(format, args...)))
		f.Headline, f.Since, f.Fix = cmp.Or(headline, f.Message), since, d.Bus.ownSettings(f.Fix)
		all = append(all, f)
	}
	switch {
	case d.Failed != nil && d.Clusters != nil:
		level := Critical
		if d.WaitingFor == "" { // the forwarder still copies the clusters that it knows
			level = Warning
		}
		add(ClusterFailed, level, &d.Failed.Since, "the source of clusters cannot be read", "%s", d.Failed.Message)
	case d.Failed != nil:
		add(ClusterFailed, Critical, &d.Failed.Since, "the cluster cannot be copied", "%s", d.Failed.Message)
	case d.WaitingFor == "":
	case d.Waiting == "":
		add(Starting, Warning, d.WaitingSince, "", "the forwarder is starting")
	case d.WaitingFor == ForBus:
		add(BusIsUnavailable, Critical, d.WaitingSince, "the bus is unavailable or refuses the forwarder", "the bus is unavailable or refuses the forwarder: %s", d.Waiting)
	default:
		add(ClusterUnavailable, Critical, d.WaitingSince, "the API server is unreachable", "%s", d.Waiting)
	}
	if e := d.KubeconfigError; e != nil {
		headline := "the new kubeconfig of the cluster cannot be used"
		add(ClusterFailed, Warning, &e.Since, headline, "%s: %s", headline, e.Message)
	}
	if d.Bus.State == BusUnavailable {
		add(BusIsUnavailable, Critical, d.Bus.Since, "bus unavailable", "bus unavailable%s: %s", d.since(d.Bus.Since), d.Bus.Error)
	}
	switch l := d.Lease; {
	case l == nil:
	case l.Error != "":
		add(LeaseDenied, Critical, nil, "access denied to the lease "+l.Name, "lease %s: %s", l.Name, strings.TrimPrefix(l.Error, "lease "+l.Name+": "))
	case !l.Leading && l.Holder == "" && l.RenewError != "":
		headline := "no forwarder is known to hold the lease " + l.Name
		add(NoLeader, Critical, l.Renewed, headline, "%s%s: %s", headline, d.since(l.Renewed), l.RenewError)
	case !l.Leading && l.Holder == "":
		add(NoLeader, Critical, l.Renewed, "", "no forwarder holds the lease %s, so nothing is published", l.Name)
	}
	for _, e := range d.Discovery {
		if e.Group == "*" {
			add(DiscoveryFailing, Critical, nil, "discovery fails", "discovery fails: %s", e.Message)
		} else {
			headline := "discovery of the group " + e.Group + " fails"
			add(DiscoveryFailing, Warning, nil, headline, "%s: %s", headline, e.Message)
		}
	}
	d.findResources(add)
	d.findUnsent(add)
	d.findComparisons(add)
	for _, u := range d.Unmatched {
		add(SettingUnmatched, Warning, nil, "", "%s", u.Sentence())
	}
	d.findContent(add)
	if m := d.Memory; m.Limit > 0 && float64(m.Used) > maxMemoryShare*float64(m.Limit) {
		add(MemoryLow, Warning, nil, "", "memory is near its limit: %s of %s", size(m.Used), size(m.Limit))
	}
	for _, r := range d.Bus.Risks {
		add(BusCanLose, Notice, nil, "", "%s", r.Message)
		all[len(all)-1].Fix = r.Fix
	}
	return all
}

type adder func(r Reason, l Level, since *time.Time, headline, format string, args ...any)

func (d Document) findResources(add adder) {
	of := map[Reason][]Resource{}
	for _, r := range d.Resources {
		denied, failing := r.failures()
		if denied.Name != "" {
			of[Forbidden] = append(of[Forbidden], denied)
		}
		if failing.Name != "" {
			of[WatchFailing] = append(of[WatchFailing], failing)
		}
		switch {
		case r.State == "degraded": // found as denied or failing
		case r.State == "starting":
			of[Syncing] = append(of[Syncing], r)
		case d.Bus.State == BusReady && r.consistencyFrom() != nil && d.Time.Sub(*r.consistencyFrom()) > maxConsistencyAge:
			of[NotConsistent] = append(of[NotConsistent], r)
		}
	}
	share := func(all []Resource) string {
		return fmt.Sprintf("%d of %s", len(all), counted(len(d.Resources), "resource"))
	}
	if all := of[Forbidden]; len(all) > 0 {
		level, headline := Warning, "access denied to "+share(all)
		switch partly := inNamespaces(all); {
		case partly != "":
			headline = "access denied in " + partly
		case len(all) == len(d.Resources) && !slices.ContainsFunc(all, Resource.isPartlyForbidden):
			level, headline = Critical, "access denied to every selected resource"
		}
		add(Forbidden, level, firstSince(all), headline, "%s: %s", headline, named(all))
	}
	if all := of[WatchFailing]; len(all) > 0 {
		level, since := Warning, firstSince(all)
		if since != nil && d.Time.Sub(*since) > toleratedFailure {
			level = Critical
		}
		headline := "lists or watches of " + share(all) + " fail"
		add(WatchFailing, level, since, headline, "%s: %s", headline, named(all))
	}
	if all := of[Syncing]; len(all) > 0 {
		headline := "the first list of " + share(all) + " is not complete"
		add(Syncing, Warning, firstSince(all), headline, "%s: %s", headline, named(all))
	}
	if all := of[NotConsistent]; len(all) > 0 {
		slices.SortStableFunc(all, func(a, b Resource) int { return a.consistencyFrom().Compare(*b.consistencyFrom()) })
		headline := "consistency points of " + share(all) + " have not advanced"
		add(NotConsistent, Warning, all[0].consistencyFrom(), headline, "%s for %s: %s", headline, d.age(all[0].consistencyFrom()), named(all))
	}
	switch {
	case len(d.Resources) == 0:
		if d.WaitingFor == "" && len(d.Discovery) == 0 {
			add(NothingWatched, Critical, nil, "", "nothing is watched: KUBERELAY_RESOURCES matches nothing that the cluster serves")
		}
	case d.selectsNothing() && len(d.Unmatched) == 0:
		add(NoObjectsSelected, Warning, nil, "", "no object is selected by %s", strings.Join(d.Selectors, ", "))
	}
}

func (d Document) findUnsent(add adder) {
	d.findRefused(add, PublishFailing, "objects of %s cannot be published", func(r Resource) bool { return !r.PublishErrorTooLarge })
	d.findRefused(add, ObjectTooLarge, "objects of %s are too large for the bus, and stay unpublished", func(r Resource) bool { return r.PublishErrorTooLarge })
	if d.OldestUnsent == nil {
		return
	}
	level := Warning
	switch age := d.Time.Sub(*d.OldestUnsent); {
	case age <= toleratedUnsent:
		return
	case age > maxUnsent:
		level = Critical
	}
	waiting := fmt.Sprintf("%d objects have changes", d.dirty())
	if d.dirty() == 1 {
		waiting = "1 object has a change"
	}
	headline, lastError := waiting+" that the bus has not acknowledged", ""
	if i := slices.IndexFunc(d.Resources, func(r Resource) bool { return r.PublishError != nil }); i >= 0 {
		lastError = fmt.Sprintf("; the last error of %s: %s", d.Resources[i].Name, d.Resources[i].PublishError.Message)
	}
	add(Unsent, level, d.OldestUnsent, headline, "%s, the oldest for %s%s", headline, d.age(d.OldestUnsent), lastError)
}

// findComparisons finds failing comparisons. A retry often succeeds, so the finding is a warning
// until the comparisons of a resource have failed for longer than maxUnsent.
func (d Document) findComparisons(add adder) {
	if len(d.Comparisons) == 0 || d.Bus.State != BusReady { // comparisons fail while the bus is unavailable
		return
	}
	level, first, names := Warning, d.Comparisons[0], []string{}
	for _, e := range d.Comparisons {
		if names = append(names, e.Resource); e.Since.Before(first.Since) {
			first = e
		}
	}
	if d.Time.Sub(first.Since) > maxUnsent {
		level = Critical
	}
	headline := "the bus cannot be compared with the cluster, so deletes can be missing: " + listed(names)
	add(ComparisonFailing, level, &first.Since, headline, "%s; %s%s: %s", headline, first.Resource, d.since(&first.Since), first.Message)
}

// findRefused finds the matching resources that have an object that the bus refuses.
func (d Document) findRefused(add adder, reason Reason, format string, matches func(Resource) bool) {
	var failing []Resource
	for _, r := range d.Resources {
		if r.PublishError != nil && matches(r) {
			failing = append(failing, r)
		}
	}
	if len(failing) > 0 && d.Bus.State == BusReady {
		r, headline := failing[0], fmt.Sprintf(format, counted(len(failing), "resource"))
		add(reason, Warning, &r.PublishError.Since, headline, "%s, %s%s: %s", headline, r.Name, d.since(&r.PublishError.Since), r.PublishError.Message)
	}
}

// findContent finds objects that are published although the filter failed for them, and objects
// that are published without their content.
func (d Document) findContent(add adder) {
	var failing, truncated []string
	var since *time.Time
	for _, r := range d.Resources {
		if e := r.FilterError; e != nil {
			failing = append(failing, r.Name+" ("+e.Message+")")
			if since == nil || e.Since.Before(*since) {
				since = &e.Since
			}
		}
		if r.Truncated > 0 {
			truncated = append(truncated, fmt.Sprintf("%s (%s)", r.Name, counted(int(r.Truncated), "state")))
		}
	}
	if len(failing) > 0 {
		headline := fmt.Sprintf("KUBERELAY_FILTER fails for objects of %s, so these objects are published", counted(len(failing), "resource"))
		add(FilterFailing, Warning, since, headline, "%s: %s", headline, listed(failing))
	}
	if len(truncated) > 0 {
		headline := fmt.Sprintf("objects of %s are too large for the bus, which has their metadata only", counted(len(truncated), "resource"))
		add(ObjectsTruncated, Warning, nil, headline, "%s: %s", headline, listed(truncated))
	}
}
