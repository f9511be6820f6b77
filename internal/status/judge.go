package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reason identifies a kind of finding.
type Reason string

// The reasons.
const (
	Unreachable       Reason = "unreachable"
	Starting          Reason = "starting"
	ClusterAway       Reason = "cluster_away"
	BusIsAway         Reason = "bus_away"
	LeaseDenied       Reason = "lease_denied"
	NoLeader          Reason = "no_leader"
	DiscoveryFailing  Reason = "discovery_failing"
	NothingWatched    Reason = "nothing_watched"
	Forbidden         Reason = "forbidden"
	WatchFailing      Reason = "watch_failing"
	Syncing           Reason = "syncing"
	Unsent            Reason = "unsent_changes"
	PublishFailing    Reason = "publish_failing"
	NotConsistent     Reason = "consistency_point_old"
	MemoryLow         Reason = "memory_low"
	SettingUnmatched  Reason = "setting_unmatched"
	NoObjectsSelected Reason = "no_objects"
	BusCanLose        Reason = "bus_can_lose"
)

// When a state that is normal for a moment becomes a finding, or a warning becomes critical.
// A watch shows a bookmark about once a minute.
const (
	toleratedFailure  = time.Minute
	toleratedUnsent   = time.Minute
	maxUnsent         = 5 * time.Minute
	maxConsistencyAge = 15 * time.Minute
	maxMemoryShare    = 0.95
)

const page = "https://github.com/kuberelay/kuberelay/blob/main/docs/troubleshooting.md#"

// Cause describes a reason.
type Cause struct {
	Reason  Reason
	Meaning string
	Fix     string
	Anchor  string // of the heading in docs/troubleshooting.md
}

// Causes returns all causes, in the order in which they can prevent each other.
func Causes() []Cause {
	return []Cause{
		{Unreachable, "the forwarder does not answer", "check that it runs, and --address", "the-forwarder-does-not-answer"},
		{Starting, "the forwarder is starting", "wait; if it lasts, see its log", "first-steps"},
		{ClusterAway, "the API server is unreachable", "check that it runs, KUBECONFIG, and the network", "waiting-for-the-api-server"},
		{BusIsAway, "the bus is away or refuses the forwarder", "check that it runs, KUBERELAY_NATS_URL or KUBERELAY_KAFKA_BROKERS, the credentials and the permissions; changes wait, and are published when it is back", "the-bus"},
		{LeaseDenied, "the API server denies access to the lease", "grant get, create and update on leases, or name another namespace in KUBERELAY_LEASE_NAMESPACE", "lease-access-denied-need-an-existing-namespace-and-get-create-and-update-on-leases-in-it"},
		{NoLeader, "no forwarder holds the lease", "wait for an election; if it lasts, see the logs of all replicas", "the-lease"},
		{DiscoveryFailing, "discovery of API groups fails", "repair the back end of the group's APIService; for all groups, the API server", "discovery-of-groups-failed-keeping-their-informers"},
		{NothingWatched, "nothing is watched", "correct KUBERELAY_RESOURCES; forwarder resources shows what it matches", "settings-match-nothing"},
		{Forbidden, "RBAC forbids resources", "grant get, list and watch, or remove them from KUBERELAY_RESOURCES; if you may read some namespaces only, name them in KUBERELAY_NAMESPACES", "access-denied-rechecking"},
		{WatchFailing, "lists or watches fail", "repair what the error names: the API server, a conversion webhook, or a field selector that the resource does not support; until then the bus keeps the last states", "watch-failed-retrying"},
		{Syncing, "the first list is not complete", "wait; a large resource takes minutes", "first-steps"},
		{Unsent, "changes wait for the bus", "see the error of the resource; without one, the bus is slower than the changes", "publish-failed-retrying"},
		{PublishFailing, "objects cannot be published", "repair what the error names; until then the bus keeps the last states, and the forwarder retries", "publish-failed-retrying"},
		{NotConsistent, "consistency points do not advance", "restart the forwarder if the API server is well: a watch may hang", "consistency-points-do-not-advance"},
		{MemoryLow, "memory is near its limit", "raise the memory limit, or select less", "memory-is-near-its-limit"},
		{SettingUnmatched, "settings match nothing", "correct the spelling, or remove the entry; an entry for a resource that is installed later can stay", "settings-match-nothing"},
		{NoObjectsSelected, "no object is selected", "check the settings for typing errors", "no-object-is-selected"},
		{BusCanLose, "the bus can lose what it acknowledged", "change the setting that the message names", "the-bus-can-lose-events-that-it-acknowledged"},
	}
}

// found makes a finding.
func found(r Reason, l Level, message string) Finding {
	all := Causes()
	c := all[slices.IndexFunc(all, func(c Cause) bool { return c.Reason == r })]
	return Finding{Reason: r, Level: l, Message: message, Fix: c.Fix, See: page + c.Anchor}
}

// Judge returns the document with its verdict.
func Judge(d Document) Document {
	findings := d.find()
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(b.Level.Code(), a.Level.Code()) })
	d.Verdict = Verdict{Level: OK, Summary: d.summary(), Findings: findings}
	wrong := len(findings)
	if first := slices.IndexFunc(findings, Finding.isNotice); first >= 0 {
		wrong = first // notices are last
	}
	if wrong > 0 {
		d.Verdict.Level, d.Verdict.Summary = findings[0].Level, findings[0].Message
		if more := wrong - 1; more > 0 {
			d.Verdict.Summary += fmt.Sprintf(" (and %d more)", more)
		}
	}
	return d
}

func (f Finding) isNotice() bool { return f.Level == Notice }

// Unanswered returns the document of a forwarder that does not answer.
func Unanswered(err error, now time.Time) Document {
	f := found(Unreachable, Critical, "the forwarder does not answer: "+oneLine(err.Error()))
	return Document{
		Verdict: Verdict{Critical, f.Message, []Finding{f}}, Time: now.UTC(),
		Resources: []Resource{}, Discovery: []DiscoveryError{}, Unmatched: []Unmatched{}, Selectors: []string{}, Work: []Work{},
	}
}

func (d Document) find() []Finding {
	all := []Finding{} // not null in JSON
	add := func(r Reason, l Level, format string, args ...any) {
		f := found(r, l, oneLine(fmt.Sprintf(format, args...)))
		f.Fix = d.Bus.ownSettings(f.Fix)
		all = append(all, f)
	}
	switch {
	case d.WaitingFor == "":
	case d.Waiting == "":
		add(Starting, Warning, "the forwarder is starting")
	case d.WaitingFor == ForBus:
		add(BusIsAway, Critical, "the bus is away or refuses the forwarder: %s", d.Waiting)
	default:
		add(ClusterAway, Critical, "%s", d.Waiting)
	}
	if d.Bus.State == BusAway {
		add(BusIsAway, Critical, "the bus is away%s: %s", d.since(d.Bus.Since), d.Bus.Error)
	}
	switch l := d.Lease; {
	case l == nil:
	case l.Error != "":
		add(LeaseDenied, Critical, "lease %s: %s", l.Name, strings.TrimPrefix(l.Error, "lease "+l.Name+": "))
	case !l.Leading && l.Holder == "":
		add(NoLeader, Critical, "no forwarder holds the lease %s, so nothing is published", l.Name)
	}
	for _, e := range d.Discovery {
		if e.Group == "*" {
			add(DiscoveryFailing, Critical, "discovery fails: %s", e.Message)
		} else {
			add(DiscoveryFailing, Warning, "discovery of the group %s fails: %s", e.Group, e.Message)
		}
	}
	d.findResources(add)
	d.findUnsent(add)
	for _, u := range d.Unmatched {
		add(SettingUnmatched, Warning, "%s", u.Sentence())
	}
	if m := d.Memory; m.Limit > 0 && float64(m.Used) > maxMemoryShare*float64(m.Limit) {
		add(MemoryLow, Warning, "memory is near its limit: %s of %s", size(m.Used), size(m.Limit))
	}
	for _, r := range d.Bus.Risks {
		add(BusCanLose, Notice, "%s", r.Message)
		all[len(all)-1].Fix = r.Fix
	}
	return all
}

func (d Document) findResources(add func(Reason, Level, string, ...any)) {
	of := map[Reason][]Resource{}
	for _, r := range d.Resources {
		switch {
		case r.Reason == "forbidden":
			of[Forbidden] = append(of[Forbidden], r)
		case r.State == "degraded":
			of[WatchFailing] = append(of[WatchFailing], r)
		case r.State == "starting":
			of[Syncing] = append(of[Syncing], r)
		case d.Bus.State == BusReady && r.ConsistentAsOf != nil && d.Time.Sub(*r.ConsistentAsOf) > maxConsistencyAge:
			of[NotConsistent] = append(of[NotConsistent], r)
		}
	}
	switch all := of[Forbidden]; {
	case len(all) == 0:
	case len(all) == len(d.Resources):
		add(Forbidden, Critical, "none of the %d selected resources may be read: %s", len(all), named(all))
	default:
		add(Forbidden, Warning, "access denied to %d of %d resources: %s", len(all), len(d.Resources), named(all))
	}
	if all := of[WatchFailing]; len(all) > 0 {
		level := Warning
		for _, r := range all {
			if r.Since != nil && d.Time.Sub(*r.Since) > toleratedFailure {
				level = Critical
			}
		}
		add(WatchFailing, level, "lists or watches of %d of %d resources fail: %s", len(all), len(d.Resources), named(all))
	}
	if all := of[Syncing]; len(all) > 0 {
		add(Syncing, Warning, "the first list of %d of %d resources is not complete: %s", len(all), len(d.Resources), named(all))
	}
	if all := of[NotConsistent]; len(all) > 0 {
		add(NotConsistent, Warning, "consistency points of %d of %d resources have not advanced for %s: %s",
			len(all), len(d.Resources), d.age(all[0].ConsistentAsOf), named(all))
	}
	switch {
	case len(d.Resources) == 0:
		if d.WaitingFor == "" && len(d.Discovery) == 0 {
			add(NothingWatched, Critical, "nothing is watched: KUBERELAY_RESOURCES matches nothing that the cluster serves")
		}
	case d.selectsNothing() && len(d.Unmatched) == 0:
		add(NoObjectsSelected, Warning, "no object is selected by %s", strings.Join(d.Selectors, ", "))
	}
}

func (d Document) findUnsent(add func(Reason, Level, string, ...any)) {
	var failing []Resource
	for _, r := range d.Resources {
		if r.PublishError != nil {
			failing = append(failing, r)
		}
	}
	if len(failing) > 0 && d.Bus.State == BusReady {
		r := failing[0]
		add(PublishFailing, Warning, "objects of %d resources cannot be published, %s%s: %s", len(failing), r.Name, d.since(&r.PublishError.Since), r.PublishError.Message)
	}
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
	add(Unsent, level, "%d objects have changes that the bus has not acknowledged, the oldest for %s", d.dirty(), d.age(d.OldestUnsent))
}

// named names some resources, each with its error.
func named(all []Resource) string {
	const show = 3
	var names []string
	for _, r := range all[:min(show, len(all))] {
		name := r.Name
		if r.WatchError != nil {
			name += " (" + r.WatchError.Message + ")"
		}
		names = append(names, name)
	}
	if more := len(all) - show; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func (d Document) summary() string {
	if l := d.Lease; l != nil && !l.Leading {
		return fmt.Sprintf("standing by, the leader is %s; %d resources watched, %d objects", l.Holder, len(d.Resources), d.objects())
	}
	s := fmt.Sprintf("%d resources watched, %d objects, ", len(d.Resources), d.objects())
	if dirty := d.dirty(); dirty == 0 {
		s += "everything published"
	} else {
		s += fmt.Sprintf("%d changes on their way", dirty)
	}
	if oldest := d.consistentAsOf(); oldest != nil {
		s += ", consistent as of " + d.age(oldest) + " ago"
	}
	return s
}

func (d Document) objects() (n int) {
	for _, r := range d.Resources {
		n += r.Objects
	}
	return n
}

func (d Document) dirty() (n int) {
	for _, r := range d.Resources {
		if r.Dirty != nil {
			n += *r.Dirty
		}
	}
	return n
}

// consistentAsOf returns that of the resource that is furthest behind, nil if one is unknown.
func (d Document) consistentAsOf() (oldest *time.Time) {
	for _, r := range d.Resources {
		if r.ConsistentAsOf == nil {
			return nil
		}
		if oldest == nil || r.ConsistentAsOf.Before(*oldest) {
			oldest = r.ConsistentAsOf
		}
	}
	return oldest
}

func (d Document) age(t *time.Time) string { return age(d.Time.Sub(*t)) }

func (d Document) since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " for " + d.age(t)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
