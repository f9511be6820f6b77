package nats

import (
	"cmp"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// ErrMisconfigured is wrapped by errors that a retry cannot fix.
var ErrMisconfigured = stream.ErrMisconfigured

// Shared is a connection that several buses use.
type Shared = stream.Shared

// ContentMode is the layout of a CloudEvent in a message (KUBERELAY_CONTENT_MODE).
type ContentMode string

const (
	// Binary puts the attributes in headers, and the bare Kubernetes object in the data.
	Binary ContentMode = "binary"
	// Structured puts the whole CloudEvent in the data as one JSON document.
	Structured ContentMode = "structured"
)

// Connection configures the connection to the servers.
type Connection = stream.Options

// Options configures a Bus. The comments name the environment variables that set the fields.
type Options struct {
	Connection // Cluster is required; [Options.WithDefaults] sets InboxPrefix

	Replicas    int // KUBERELAY_NATS_REPLICAS; 1 if 0
	History     int // KUBERELAY_NATS_HISTORY, the number of messages kept per object; 8 if 0
	ContentMode ContentMode

	// Permit, if set, is called before every request that changes the messages of the stream. An
	// error prevents the request. Compare-and-set is not sufficient: it accepts messages from a
	// replaced writer until the new writer publishes to the same subject.
	Permit publish.Permit

	// MaxInFlight is the maximum number of messages without an acknowledgement
	// (KUBERELAY_NATS_MAX_IN_FLIGHT). At the limit, Publish blocks. The default is 512.
	MaxInFlight int

	// Invalid, if set, receives the messages that are not valid Kuberelay events.
	Invalid *publish.Invalid
}

// WithDefaults returns the options with defaults in place of zero values, and with the forwarder's
// InboxPrefix.
func (o Options) WithDefaults() Options {
	o.Connection = o.Connection.WithDefaults()
	o.InboxPrefix = inboxPrefix
	o.ContentMode = cmp.Or(o.ContentMode, Binary)
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.History = cmp.Or(o.History, 8)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 512)
	return o
}

// inboxPrefix is the prefix of the forwarder's reply subjects. With this separate prefix, the
// permissions of readers can exclude these subjects.
const inboxPrefix = "_INBOX.kuberelay"

// validate checks the settings of the writer. [stream.Connect] checks those of the
// connection.
func (o Options) validate() error {
	switch {
	case o.Cluster == "":
		return stream.Misconfigured("the cluster name is empty: set KUBERELAY_CLUSTER_NAME")
	case o.Replicas < 1 || o.Replicas > 5:
		return stream.Misconfigured("KUBERELAY_NATS_REPLICAS is %d: JetStream supports 1 to 5", o.Replicas)
	case o.History < 1:
		return stream.Misconfigured("KUBERELAY_NATS_HISTORY is %d: it must be at least 1", o.History)
	case o.ContentMode != Binary && o.ContentMode != Structured:
		return stream.Misconfigured("KUBERELAY_CONTENT_MODE is %q: use %q or %q", o.ContentMode, Binary, Structured)
	case o.AckTimeout < 0 || o.MaxInFlight < 0:
		return stream.Misconfigured("the acknowledgement timeout (%s) and the number in flight (%d) must not be negative", o.AckTimeout, o.MaxInFlight)
	}
	return nil
}
