// Package trace says where the last change of one object is: at the API server, in the watch of
// the forwarder, in its queue, on the bus, or at a consumer.
//
// A [Document] holds the facts, each from the party that knows it best. [Judge] draws the verdict
// from them: a pure function, so the same facts always have the same verdict.
//
// The package does no I/O and imports nothing else of the project. A document has no content of
// objects. Errors can contain names of objects, as the log does.
package trace

import "time"

// Document is the answer of forwarder trace. The JSON field names are stable; new fields can be
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
	Resource  string `json:"resource"` // with its group: "deployments.apps"
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

// State says whether an object is somewhere, as one party sees it.
type State string

// The states.
const (
	Exists     State = "exists"
	Absent     State = "absent"
	Deleted    State = "deleted"    // on the bus: the last event is a delete
	Deselected State = "deselected" // on the bus: the object left the selection
	Unknown    State = "unknown"    // the error says why
)

// APIServer is the object at the API server: exists, absent or unknown.
type APIServer struct {
	State   State  `json:"state"`
	UID     string `json:"uid,omitempty"`
	Version string `json:"version,omitempty"` // resourceVersion
	Error   string `json:"error,omitempty"`
}

// Selected says whether the settings select an object.
type Selected string

// The values of Selected. Forbidden means that the settings select the resource, and that the
// forwarder may not watch it there.
const (
	IsSelected    Selected = "yes"
	NotSelected   Selected = "no"
	IsForbidden   Selected = "forbidden"
	MaybeSelected Selected = "unknown"
)

// Selection says whether the settings select the object.
type Selection struct {
	Selected Selected `json:"selected"`
	// From is who said so: forwarder, or environment for the settings of the command.
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

// Forwarder is what a running forwarder knows of the object. It is the body of /api/v1/trace.
type Forwarder struct {
	Role    Role   `json:"role"`
	Address string `json:"address,omitempty"` // that the command asked
	Error   string `json:"error,omitempty"`   // of an unreachable one, why it is starting, or why a standby cannot renew the lease that nobody holds
	Cluster string `json:"cluster,omitempty"`
	Holder  string `json:"holder,omitempty"` // of the lease

	// Verdict is what can be said without the API server and the bus. It is only at /api/v1/trace, as
	// is Selection.
	Verdict       *Verdict   `json:"verdict,omitempty"`
	Selection     *Selection `json:"selection,omitempty"`
	LabelSelector string     `json:"labelSelector,omitempty"` // of the watch, as is FieldSelector
	FieldSelector string     `json:"fieldSelector,omitempty"`

	Watch *Watch `json:"watch,omitempty"` // absent if no watch covers the object
	// Checkpoint is the last event on the bus as a leader knows it.
	Checkpoint *Entry `json:"checkpoint,omitempty"`
	// Unsent is when the forwarder observed the oldest change that the bus has not acknowledged.
	Unsent   *time.Time `json:"unsent,omitempty"`
	Queue    string     `json:"queue,omitempty"`    // see package workqueue; absent if nothing waits
	Attempts int        `json:"attempts,omitempty"` // that failed since the last success
	Decision string     `json:"decision,omitempty"` // see docs/architecture.md, "The states of one key"
	// Unpublishable: the bus refuses the present state, and a retry cannot help.
	Unpublishable bool          `json:"unpublishable,omitempty"`
	PublishError  *PublishError `json:"publishError,omitempty"`
	BusAway       *Error        `json:"busAway,omitempty"`
}

// Role is the role of a forwarder.
type Role string

// The roles.
const (
	Leading     Role = "leading" // also without leader election
	Standby     Role = "standby"
	Starting    Role = "starting"
	Unreachable Role = "unreachable"
)

// Watch is the watch that covers the object, and the object in its cache.
type Watch struct {
	State  string `json:"state"`            // starting, synced or degraded
	Reason string `json:"reason,omitempty"` // why it is degraded
	Error  *Error `json:"error,omitempty"`  // of the last list or watch
	// Object is exists, absent, or unknown before the first list is complete.
	Object  State  `json:"object"`
	UID     string `json:"uid,omitempty"`
	Version string `json:"version,omitempty"`
}

// Entry is the last event of the object in the checkpoint.
type Entry struct {
	State    State      `json:"state"` // exists, absent, deleted or deselected
	UID      string     `json:"uid,omitempty"`
	Version  string     `json:"version,omitempty"`
	Position string     `json:"position,omitempty"`
	Time     *time.Time `json:"time,omitempty"` // attribute time of the event
	// Foreign: it is not known who wrote the event at the position.
	Foreign bool `json:"foreign,omitempty"`
}

// Error is an error that has not been resolved.
type Error struct {
	Message string     `json:"message"`
	Since   *time.Time `json:"since,omitempty"`
}

// PublishError is the last error of a publish. OtherObject: it is of another object of the
// resource.
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
	Position string     `json:"position,omitempty"` // the sequence, or partition:offset
	Time     *time.Time `json:"time,omitempty"`     // when the forwarder observed the state
	Stored   *time.Time `json:"stored,omitempty"`   // when the bus stored the event
	// Truncated: the event has only apiVersion, kind and metadata.
	Truncated bool   `json:"truncated,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Consumer is the progress of a consumer of NATS, or of a consumer group of Kafka.
type Consumer struct {
	Name string `json:"name"`
	// Event is the position of the object's last event in its log: the sequence in the stream, or
	// the offset in the partition. Acknowledged is the position up to which everything is
	// acknowledged, on Kafka committed; Delivered is that of the last delivered message.
	Event        int64  `json:"event"`
	Acknowledged int64  `json:"acknowledged"`
	Delivered    *int64 `json:"delivered,omitempty"` // NATS only
	Behind       int64  `json:"behind"`              // messages that are not acknowledged
	Other        string `json:"other,omitempty"`     // why the consumer does not get the event at all
	Error        string `json:"error,omitempty"`
}
