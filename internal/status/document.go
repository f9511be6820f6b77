// Package status reports whether a forwarder's copy of the cluster is correct, and how old it is.
// If something is wrong, it reports what is wrong and how to fix it.
//
// A [Document] describes the state of the forwarder. [Judge] computes the verdict. Judge is a pure
// function, so the same document always has the same verdict. The printers write a judged document
// for people and for monitoring systems.
//
// The package does no I/O, and package terminal is its only import from this project. A document
// contains no content of objects. Like the log, it can contain names of objects, in errors.
package status

import (
	"strings"
	"time"
)

// Document is the body of /api/v1/status. The JSON field names are stable. New fields can be added.
// Times are in UTC. A field that is unknown is absent.
type Document struct {
	Verdict Verdict `json:"verdict"`

	Time    time.Time `json:"time"` // when the document was made
	Version string    `json:"version"`
	Cluster string    `json:"cluster,omitempty"`
	// Clusters contains a document for each cluster, ordered by name, if the forwarder copies
	// several clusters. In that case, the fields of this document that describe one cluster are not set.
	Clusters []Document `json:"clusters,omitzero"`
	// Failed is the reason why this cluster is not copied or, with several clusters, why the source
	// of clusters cannot be read. The forwarder retries.
	Failed *Error `json:"failed,omitempty"`
	// KubeconfigError is the reason why the new kubeconfig of this cluster cannot be used. The forwarder
	// continues with the previous one.
	KubeconfigError *Error `json:"kubeconfigError,omitempty"`
	// Instance is the name of this forwarder among the candidates for the lease. It is absent
	// without leader election.
	Instance string `json:"instance,omitempty"`
	// WaitingFor is [ForCluster] or [ForBus] while the forwarder cannot start, or cannot begin a term,
	// without the cluster or the bus. Waiting is the reason.
	WaitingFor   string     `json:"waitingFor,omitempty"`
	Waiting      string     `json:"waiting,omitempty"`
	WaitingSince *time.Time `json:"waitingSince,omitempty"`

	Resources []Resource `json:"resources"` // ordered by name
	// UnwatchedDirty is the number of objects of unwatched resources whose delete or deselection the bus
	// has not acknowledged, for example after a CustomResourceDefinition was removed.
	UnwatchedDirty int `json:"unwatchedDirty,omitempty"`

	Discovery []DiscoveryError `json:"discoveryErrors"`
	Unmatched []Unmatched      `json:"unmatched"`
	// Selectors lists the settings that narrow the selection of objects, each with its value.
	Selectors []string `json:"selectors"`

	// Comparisons lists the failing comparisons of the bus with the cluster, ordered by resource. A
	// resource that is not watched can be among them.
	Comparisons []ComparisonError `json:"comparisonErrors,omitempty"`

	// ConsistencyPointsOff is true if KUBERELAY_RESOLVED_INTERVAL is 0.
	ConsistencyPointsOff bool `json:"consistencyPointsOff,omitempty"`

	Work []Work `json:"work"` // long work in progress, in the order in which a start runs it

	// OldestUnsent is the time when the oldest unacknowledged change was observed.
	OldestUnsent *time.Time `json:"oldestUnsent,omitempty"`

	Bus    Bus    `json:"bus"`
	Lease  *Lease `json:"lease,omitempty"` // absent without leader election, and before the Lease is read
	Memory Memory `json:"memory"`
}

// Empty returns a document without data. Its lists encode as [] in JSON, not as null.
func Empty(now time.Time) Document {
	return Document{
		Time: now.UTC(), Resources: []Resource{}, Discovery: []DiscoveryError{}, Unmatched: []Unmatched{}, Selectors: []string{}, Work: []Work{},
	}
}

// The values of WaitingFor.
const (
	ForCluster = "cluster"
	ForBus     = "bus"
)

// Verdict is the result of [Judge].
type Verdict struct {
	Level    Level     `json:"level"`
	Summary  string    `json:"summary"`  // one line
	Findings []Finding `json:"findings"` // the worst first; only notices if the level is ok
}

// Level is the severity of a finding, or of a verdict.
type Level string

// The levels. Notice means that the copy is right but could be safer. Only a finding has this
// level, and the verdict stays ok. Warning means that part of the copy might be missing, or that the
// copy might become wrong. Critical means that the copy is not current. [Judge] never returns Unknown: it
// is the level in the output for Nagios if the forwarder refuses the request.
const (
	OK       Level = "ok"
	Notice   Level = "notice"
	Warning  Level = "warning"
	Critical Level = "critical"
	Unknown  Level = "unknown"
)

// Code returns the exit code of a level: 0, 1, or 2.
func (l Level) Code() int {
	switch l {
	case OK, Notice:
		return 0
	case Warning:
		return 1
	}
	return 2
}

// Finding is one problem. Headline has no error text and no age. Message can have both.
type Finding struct {
	Cluster  string     `json:"cluster,omitempty"` // name of one of several clusters; set only in their common document
	Reason   Reason     `json:"reason"`
	Level    Level      `json:"level"`
	Headline string     `json:"headline"`
	Since    *time.Time `json:"since,omitempty"`
	Message  string     `json:"message"`
	Fix      string     `json:"fix"`
	See      string     `json:"see"` // URL of a heading in docs/troubleshooting.md
}

// Resource is the state of one watched resource.
type Resource struct {
	Name    string `json:"resource"` // name with the group: "deployments.apps"
	Version string `json:"version"`

	// State is the worst state of the namespaces: starting, synced, or degraded. Reason says why
	// the state is degraded: forbidden, not_found, unauthorized, or failing.
	State  string     `json:"state"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// DegradedNamespaces lists the degraded namespaces among those that have their own watch.
	DegradedNamespaces []string `json:"degradedNamespaces,omitempty"`
	// Namespaces is the number of namespaces that have their own watch. ForbiddenNamespaces is the
	// number of these namespaces to which access is denied. NamespaceErrors lists their first
	// errors: at most [MaxNamespaceErrors] of denied access, and at most as many others.
	Namespaces          int              `json:"namespaces,omitempty"`
	ForbiddenNamespaces int              `json:"forbiddenNamespaces,omitempty"`
	NamespaceErrors     []NamespaceError `json:"namespaceErrors,omitempty"`

	Objects int  `json:"objects"`         // objects in the cache; also 0 before the first complete list
	Dirty   *int `json:"dirty,omitempty"` // objects whose current state the bus has not acknowledged

	// ConsistentAsOf is the time of the latest state of the cluster that the bus is known to have
	// in full: the time of the last consistency point, or later if nothing has changed since.
	ConsistentAsOf *time.Time `json:"consistentAsOf,omitempty"`
	// NoPointSince is the time when the first sync was complete, if no consistency point followed.
	NoPointSince *time.Time `json:"noPointSince,omitempty"`
	// LastPublished is the time when the bus last acknowledged an event of the resource in this
	// term.
	LastPublished *time.Time `json:"lastPublished,omitempty"`
	// LagSeconds is the time from the observation of that event's change to the acknowledgement.
	LagSeconds *float64 `json:"lagSeconds,omitempty"`

	// Truncated is the number of states that were published with metadata only in this term,
	// because they were too large for the bus.
	Truncated int64 `json:"truncated,omitempty"`

	// FilterError is the first error of KUBERELAY_FILTER for any object of this resource. Objects for
	// which the filter fails are published.
	FilterError *Error `json:"filterError,omitempty"`
	// WatchError is the error of the last list or watch. PublishError is the last error of an
	// object that is not published yet, with the name of the object.
	WatchError   *Error `json:"watchError,omitempty"`
	PublishError *Error `json:"publishError,omitempty"`
	// PublishErrorTooLarge is true if the object of PublishError is too large for the bus even
	// without content.
	PublishErrorTooLarge bool `json:"publishErrorTooLarge,omitempty"`
}

// MaxNamespaceErrors limits NamespaceErrors.
const MaxNamespaceErrors = 3

// NamespaceError is the error of the last list or watch of one namespace.
type NamespaceError struct {
	Namespace string `json:"namespace"`
	Reason    string `json:"reason"` // has the same values as the reason of the resource
	Error
}

// Error is an error that has not been resolved.
type Error struct {
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// DiscoveryError is the error of an API group whose discovery fails. The group "*" means all
// groups.
type DiscoveryError struct {
	Group   string `json:"group"`
	Message string `json:"message"`
}

// ComparisonError is the error from a resource's last comparison of the bus with the cluster.
type ComparisonError struct {
	Resource string `json:"resource"`
	Error
}

// Unmatched is an entry of a setting that matches nothing. For KUBERELAY_FILTER, it is a resource
// for which the filter selects no object.
type Unmatched struct {
	Setting    string `json:"setting"`
	Entry      string `json:"entry"`
	Suggestion string `json:"suggestion,omitempty"` // a similar name
}

// Work is long work in progress.
type Work struct {
	// Work is takeover, checkpoint_load, list, first_sync, resend, or resync. Unit is the unit of
	// Done and Total: records, messages, resources, or objects.
	Work  string    `json:"work"`
	Unit  string    `json:"unit"`
	Since time.Time `json:"since"`

	Done    int64  `json:"done"`
	Total   *int64 `json:"total,omitempty"`
	Growing bool   `json:"growing,omitempty"` // Total is the amount known so far

	PerSecond   float64 `json:"perSecond"`             // speed in the last 30 seconds
	SecondsLeft *int64  `json:"secondsLeft,omitempty"` // an estimate
}

// BusState is the state of the connection to the bus.
type BusState string

// The states. A standby does not use the bus.
const (
	BusReady       BusState = "ready"
	BusUnavailable BusState = "unavailable"
	BusUnused      BusState = "unused"
)

// Bus is the state of the bus.
type Bus struct {
	Sink     string     `json:"sink"` // nats, kafka, or stdout
	State    BusState   `json:"state"`
	Since    *time.Time `json:"since,omitempty"` // when the bus became unavailable
	Error    string     `json:"error,omitempty"`
	Queued   int        `json:"queued"`   // keys that wait for a worker or for a retry
	InFlight int        `json:"inFlight"` // keys with an event that awaits its acknowledgement
	// ForeignEvents is the number of events of another writer that were repaired in this term.
	ForeignEvents int `json:"foreignEvents"`
	// Risks lists the settings that allow the bus to lose acknowledged events.
	Risks []Risk `json:"risks,omitempty"`
}

// Risk is a setting that allows the bus to lose acknowledged events.
type Risk struct {
	Setting string   `json:"setting"` // the setting with its value
	Of      []string `json:"of"`      // the streams or topics that have it
	Message string   `json:"message"`
	Fix     string   `json:"fix"`
}

// ownSettings returns a fix without the settings of other buses.
func (b Bus) ownSettings(fix string) string {
	const either, nats, kafka = "KUBERELAY_NATS_URL or KUBERELAY_KAFKA_BROKERS", "KUBERELAY_NATS_URL", "KUBERELAY_KAFKA_BROKERS"
	switch b.Sink {
	case "nats":
		return strings.ReplaceAll(fix, either, nats)
	case "kafka":
		return strings.ReplaceAll(fix, either, kafka)
	}
	return fix
}

// Lease is the state of the leader election.
type Lease struct {
	Name    string `json:"name"` // namespace/name
	Leading bool   `json:"leading"`
	Holder  string `json:"holder,omitempty"` // absent if nobody renews the lease
	Error   string `json:"error,omitempty"`  // why the API server denies access to the lease

	// Renewed is the time of the last renewal that this forwarder knows. RenewError is the reason
	// why this forwarder cannot read or renew the lease. Both are absent if the lease has a holder.
	Renewed    *time.Time `json:"renewed,omitempty"`
	RenewError string     `json:"renewError,omitempty"`
}

// Memory is the memory of the Go runtime. Limit is GOMEMLIMIT, or 0 if it is not set. The forwarder
// sets GOMEMLIMIT to 90% of the limit of its container.
type Memory struct {
	Used  uint64 `json:"usedBytes"`
	Limit uint64 `json:"limitBytes"`
}
