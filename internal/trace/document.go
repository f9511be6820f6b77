// Package trace reports where the last change of one object is: at the API server, in the watch of
// the forwarder, in its queue, on the bus, or at a consumer.
//
// A [Document] holds the facts, each from the party that knows it best. [Judge] computes the
// verdict. Judge is a pure function, so the same facts always have the same verdict.
//
// The package does no I/O, and package terminal is its only import from this project. A document
// contains no content of objects. Like the log, it can contain names of objects, in errors.
package trace

import "time"

// Document is the result of forwarder trace. The JSON field names are stable. New fields can be
// added. Times are in UTC. A field that is unknown is absent.
type Document struct {
	Verdict Verdict `json:"verdict"`

	Time    time.Time `json:"time"` // when the document was made
	Cluster string    `json:"cluster,omitempty"`
	Object  Object    `json:"object"`

	APIServer APIServer `json:"apiServer"`
	Selection Selection `json:"selection"`
	Forwarder Forwarder `json:"forwarder"`
	Bus       Bus       `json:"bus"`
	Consumer  *Consumer `json:"consumer,omitempty"` // absent unless one was named
}

// Object names the object.
type Object struct {
	Resource  string `json:"resource"` // name with the group: "deployments.apps"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns a text for people: "deployments.apps shop/web".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Resource + " " + o.Name
	}
	return o.Resource + " " + o.Namespace + "/" + o.Name
}

// State is the state of an object in the view of one party.
type State string

// The states.
const (
	Exists     State = "exists"
	Absent     State = "absent"
	Deleted    State = "deleted"    // on the bus: the last event is a delete
	Deselected State = "deselected" // on the bus: the object left the selection
	Unknown    State = "unknown"    // the error says why
)

// APIServer is the object at the API server. State is exists, absent, or unknown.
type APIServer struct {
	State   State  `json:"state"`
	UID     string `json:"uid,omitempty"`
	Version string `json:"version,omitempty"` // resourceVersion
	Error   string `json:"error,omitempty"`
}

// Selected says whether the settings select an object.
type Selected string

// The values of Selected. IsForbidden means that the settings select the resource, but the
// forwarder is not allowed to watch it there.
const (
	IsSelected    Selected = "yes"
	NotSelected   Selected = "no"
	IsForbidden   Selected = "forbidden"
	MaybeSelected Selected = "unknown"
)

// Selection says whether the settings select the object.
type Selection struct {
	Selected Selected `json:"selected"`
	// From is the source of this information: forwarder, or environment for the settings of the
	// command.
	From string `json:"from"`
	// Selector is the entry of KUBERELAY_RESOURCES that selects the resource.
	Selector string `json:"selector,omitempty"`
	Detail   string `json:"detail,omitempty"` // why it is not selected, or why that is unknown
	Filter   string `json:"filter,omitempty"` // the result of KUBERELAY_FILTER: true, false, or failed
}

// The values of Selection.From.
const (
	FromForwarder   = "forwarder"
	FromEnvironment = "environment"
)

// The values of Selection.Filter. An object for which the filter fails is published.
const (
	FilterTrue   = "true"
	FilterFalse  = "false"
	FilterFailed = "failed"
)

// Forwarder is a running forwarder's view of the object. It is the body of /api/v1/trace.
type Forwarder struct {
	Role    Role   `json:"role"`
	Address string `json:"address,omitempty"` // address of the forwarder that the command asked
	// Error says why the forwarder is unreachable or starting. For a standby that knows no leader, it says
	// why the standby cannot read or renew the lease.
	Error   string `json:"error,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Holder  string `json:"holder,omitempty"` // holder of the lease

	// Verdict is the verdict without the API server and the bus. Only /api/v1/trace has Verdict and
	// Selection.
	Verdict       *Verdict   `json:"verdict,omitempty"`
	Selection     *Selection `json:"selection,omitempty"`
	LabelSelector string     `json:"labelSelector,omitempty"` // label selector of the watch; FieldSelector is its field selector
	FieldSelector string     `json:"fieldSelector,omitempty"`

	Watch *Watch `json:"watch,omitempty"` // absent if no watch covers the object
	// Checkpoint is the last event on the bus as a leader knows it.
	Checkpoint *Entry `json:"checkpoint,omitempty"`
	// Unsent is the time when the forwarder observed the oldest change that the bus has not
	// acknowledged.
	Unsent   *time.Time `json:"unsent,omitempty"`
	Queue    string     `json:"queue,omitempty"`    // see package workqueue; absent if nothing waits
	Attempts int        `json:"attempts,omitempty"` // failed attempts since the last success
	Decision string     `json:"decision,omitempty"` // see docs/architecture.md, "The states of one key"
	// Unpublishable is true if the bus rejects the current state and a retry cannot help.
	Unpublishable  bool          `json:"unpublishable,omitempty"`
	PublishError   *PublishError `json:"publishError,omitempty"`
	BusUnavailable *Error        `json:"busUnavailable,omitempty"`
}

// Role is the role of a forwarder.
type Role string

// The roles.
const (
	Leading     Role = "leading" // also the role of a forwarder without leader election
	Standby     Role = "standby"
	Starting    Role = "starting"
	Unreachable Role = "unreachable"
)

// Watch is the watch that covers the object, and the object in its cache.
type Watch struct {
	State  string `json:"state"`            // starting, synced, or degraded
	Reason string `json:"reason,omitempty"` // why the watch is degraded
	Error  *Error `json:"error,omitempty"`  // error of the last list or watch
	// Object is exists, absent, or unknown before the first list is complete.
	Object  State  `json:"object"`
	UID     string `json:"uid,omitempty"`
	Version string `json:"version,omitempty"`
}

// Entry is the last event of the object in the checkpoint.
type Entry struct {
	State    State      `json:"state"` // exists, absent, deleted, or deselected
	UID      string     `json:"uid,omitempty"`
	Version  string     `json:"version,omitempty"`
	Position string     `json:"position,omitempty"`
	Time     *time.Time `json:"time,omitempty"` // attribute time of the event
	// Foreign is true if the writer of the event at the position is unknown.
	Foreign bool `json:"foreign,omitempty"`
}

// Error is an error that has not been resolved.
type Error struct {
	Message string     `json:"message"`
	Since   *time.Time `json:"since,omitempty"`
}

// PublishError is the last error of a publish. OtherObject is true if the error is of another
// object of the resource.
type PublishError struct {
	Message     string     `json:"message"`
	Since       *time.Time `json:"since,omitempty"`
	OtherObject bool       `json:"otherObject,omitempty"`
}

// Bus is the last event of the object, as a subscriber reads it.
type Bus struct {
	Source   string     `json:"source,omitempty"` // "stream KUBERELAY"
	State    State      `json:"state"`
	Type     string     `json:"type,omitempty"` // created, updated, ...
	UID      string     `json:"uid,omitempty"`
	Version  string     `json:"version,omitempty"`
	Position string     `json:"position,omitempty"` // the sequence number, or partition:offset
	Time     *time.Time `json:"time,omitempty"`     // when the forwarder observed the state
	Stored   *time.Time `json:"stored,omitempty"`   // when the bus stored the event
	// Truncated is true if the event has only apiVersion, kind, and metadata.
	Truncated bool   `json:"truncated,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Consumer is the progress of a consumer of NATS, or of a consumer group of Kafka.
type Consumer struct {
	Name string `json:"name"`
	// Event is the position of the object's last event in its log: the sequence number in the
	// stream, or the offset in the partition. Acknowledged is the position up to which every
	// message is acknowledged, or committed on Kafka. Delivered is the position of the last
	// delivered message.
	Event        int64  `json:"event"`
	Acknowledged int64  `json:"acknowledged"`
	Delivered    *int64 `json:"delivered,omitempty"` // NATS only
	Behind       int64  `json:"behind"`              // messages that are not acknowledged
	Other        string `json:"other,omitempty"`     // why the consumer does not receive the event at all
	Error        string `json:"error,omitempty"`
}
