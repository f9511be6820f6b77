package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Reason identifies a kind of finding.
type Reason string

// The reasons.
const (
	Unreachable        Reason = "unreachable"
	TokenNotReviewed   Reason = "token_not_reviewed"
	Starting           Reason = "starting"
	ClusterFailed      Reason = "cluster_failed"
	ClusterUnavailable Reason = "cluster_unavailable"
	BusIsUnavailable   Reason = "bus_unavailable"
	LeaseDenied        Reason = "lease_denied"
	NoLeader           Reason = "no_leader"
	DiscoveryFailing   Reason = "discovery_failing"
	NothingWatched     Reason = "nothing_watched"
	Forbidden          Reason = "forbidden"
	WatchFailing       Reason = "watch_failing"
	Syncing            Reason = "syncing"
	Unsent             Reason = "unsent_changes"
	PublishFailing     Reason = "publish_failing"
	ComparisonFailing  Reason = "comparison_failing"
	ObjectTooLarge     Reason = "object_too_large"
	NotConsistent      Reason = "consistency_point_old"
	MemoryLow          Reason = "memory_low"
	SettingUnmatched   Reason = "setting_unmatched"
	NoObjectsSelected  Reason = "no_objects"
	FilterFailing      Reason = "filter_failing"
	ObjectsTruncated   Reason = "objects_truncated"
	BusCanLose         Reason = "bus_can_lose"
)

// The limits at which a state becomes a finding, or a warning becomes critical. Without changes,
// bookmarks advance the consistency point about once a minute.
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
	Anchor  string // anchor of the heading in docs/troubleshooting.md
}

// Causes returns all causes. A cause can hide the causes after it.
func Causes() []Cause {
	return []Cause{
		{Unreachable, "the forwarder does not respond", "check that it is running, and check --address", "the-forwarder-does-not-respond"},
		{TokenNotReviewed, "the forwarder cannot review the token", "check that the API server is running, and bind the ClusterRole system:auth-delegator to the forwarder's service account", "cannot-review-the-token-of-a-request"},
		{Starting, "the forwarder is starting", "wait; if this lasts, read its log", "first-steps"},
		{ClusterFailed, "a cluster cannot be copied, its new kubeconfig cannot be used, or the source of clusters cannot be read", "repair what the error names; the forwarder tries again by itself, with a backoff of up to about 80 seconds", "cannot-copy-the-cluster-retrying"},
		{ClusterUnavailable, "the API server is unreachable", "check that it is running; check KUBECONFIG and the network", "waiting-for-the-api-server"},
		{BusIsUnavailable, "the bus is unavailable or refuses the forwarder", "check that it is running; check KUBERELAY_NATS_URL or KUBERELAY_KAFKA_BROKERS, the credentials, and the permissions; changes wait, and are published when it is back", "the-bus"},
		{LeaseDenied, "the API server denies access to the lease", "grant get, create, and update on leases, or name another namespace in KUBERELAY_LEASE_NAMESPACE", "lease-access-denied-leader-election-needs-an-existing-namespace-and-get-create-and-update-on-leases-in-it"},
		{NoLeader, "no forwarder holds the lease", "wait for an election; if it lasts, see the logs of all replicas", "the-lease"},
		{DiscoveryFailing, "discovery of API groups fails", "repair the back end of the group's APIService or, if all groups fail, the API server", "discovery-of-groups-failed-keeping-their-informers"},
		{NothingWatched, "nothing is watched", "correct KUBERELAY_RESOURCES; forwarder resources shows what it matches", "settings-match-nothing"},
		{Forbidden, "RBAC forbids resources", "grant get, list, and watch on these resources, or remove the resources from KUBERELAY_RESOURCES; if the forwarder can read only some namespaces, name them in KUBERELAY_NAMESPACES", "access-denied-rechecking"},
		{WatchFailing, "lists or watches fail", "repair what the error names: the API server, a conversion webhook, or a field selector that the resource does not support; until then the bus keeps the last states", "watch-failed-retrying"},
		{Syncing, "the first list is not complete", "wait; a large resource takes minutes", "first-steps"},
		{Unsent, "changes wait for the bus", "repair what the error names; without an error, the bus is too slow for the changes", "publish-failed-retrying"},
		{PublishFailing, "objects cannot be published", "repair what the error names; until then the bus keeps the last states, and the forwarder retries", "publish-failed-retrying"},
		{ObjectTooLarge, "objects are too large for the bus even without content", "raise the message size limit of the bus, shorten the object's metadata, or exclude the object", "object-metadata-is-too-large-for-the-bus-object-stays-unpublished"},
		{ComparisonFailing, "the comparison of the bus with the cluster fails", "repair what the error names: the forwarder needs get on the resource; until then an object that was deleted while no forwarder watched stays on the bus", "comparing-the-bus-with-the-cluster-failed-retrying"},
		{NotConsistent, "consistency points do not advance", "if the API server is healthy, restart the forwarder: a watch may hang", "consistency-points-do-not-advance"},
		{MemoryLow, "memory is near its limit", "raise the memory limit, or select less", "memory-is-near-its-limit"},
		{SettingUnmatched, "settings match nothing", "correct the spelling, or remove the entry; an entry for a resource that is installed later can stay", "settings-match-nothing"},
		{NoObjectsSelected, "no object is selected", "check the settings for typos", "no-object-is-selected"},
		{FilterFailing, "the filter fails for some objects, which are published anyway", "guard fields that can be missing, and restart the forwarder", "kuberelay_filter-failed-for-an-object-so-the-object-is-published-logged-once-per-resource"},
		{ObjectsTruncated, "objects are published with metadata only", "raise the message size limit of the bus, or drop fields with KUBERELAY_DROP_FIELDS, and restart the forwarder", "object-is-too-large-for-the-bus-publishing-its-metadata-only"},
		{BusCanLose, "the bus can lose what it acknowledged", "change the setting that the message names", "the-bus-can-lose-events-that-it-acknowledged"},
	}
}

// found returns a finding, with the fix of its cause.
func found(r Reason, l Level, message string) Finding {
	all := Causes()
	c := all[slices.IndexFunc(all, func(c Cause) bool { return c.Reason == r })]
	return Finding{Reason: r, Level: l, Headline: message, Message: message, Fix: c.Fix, See: page + c.Anchor}
}

// Judge returns the document with its verdict.
func Judge(d Document) Document {
	findings := d.find()
	if d.Clusters != nil {
		d.Clusters, findings = judgeClusters(d)
	}
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

// Unanswered returns the document of a forwarder that does not respond.
func Unanswered(err error, now time.Time) Document {
	return withoutDocument(Unreachable, "the forwarder does not respond", err, now)
}

// NotReviewed returns the document of a forwarder that responds but cannot have the token of the
// request reviewed.
func NotReviewed(err error, now time.Time) Document {
	return withoutDocument(TokenNotReviewed, "the forwarder cannot review the token", err, now)
}

func withoutDocument(r Reason, headline string, err error, now time.Time) Document {
	f := found(r, Critical, headline+": "+terminal.OneLine(err.Error()))
	f.Headline = headline
	d := Empty(now)
	d.Verdict = Verdict{Critical, f.Message, []Finding{f}}
	return d
}

func (d Document) summary() string {
	if d.Clusters != nil {
		return d.clustersSummary()
	}
	watched := counted(len(d.Resources), "resource") + " watched, " + counted(d.objects(), "object")
	if l := d.Lease; l != nil && !l.Leading {
		return fmt.Sprintf("standing by, the leader is %s; %s; only the leader knows what is published", l.Holder, watched)
	}
	s := watched + ", " + onTheWay(d.dirty())
	if oldest := d.consistentAsOf(); oldest != nil {
		s += ", consistent as of " + d.age(oldest) + " ago"
	}
	return s
}

// onTheWay describes a number of changes that the bus has not acknowledged.
func onTheWay(dirty int) string {
	switch dirty {
	case 0:
		return "everything published"
	case 1:
		return "1 change on its way"
	}
	return fmt.Sprintf("%d changes on their way", dirty)
}

func (d Document) objects() (n int) {
	for _, r := range d.Resources {
		n += r.Objects
	}
	return n
}

func (d Document) dirty() (n int) {
	n = d.UnwatchedDirty
	for _, r := range d.Resources {
		if r.Dirty != nil {
			n += *r.Dirty
		}
	}
	return n
}

// consistentAsOf returns the ConsistentAsOf of the resource that is furthest behind, or nil if it
// is unknown for any resource.
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

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
