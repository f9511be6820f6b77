package nats

import (
	"cmp"
	"log/slog"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// ErrMisconfigured is in the chain of an error that a retry cannot fix.
var ErrMisconfigured = stream.ErrMisconfigured

// Shared is a connection that several buses use.
type Shared = stream.Shared

// ContentMode is the layout of a CloudEvent in a message.
type ContentMode string

const (
	// Binary puts the attributes in headers, and the bare Kubernetes object in the data.
	Binary ContentMode = "binary"
	// Structured puts the whole CloudEvent in the data as one JSON document.
	Structured ContentMode = "structured"
)

// Options configures a Bus. The comment of a field names the environment variable that
// errors mention.
type Options struct {
	// URLs are the servers to try, without credentials (KUBERELAY_NATS_URL). Not needed
	// with InProcess.
	URLs []string
	// InProcess, if set, is a server in this process to connect to without a socket.
	InProcess natsgo.InProcessConnProvider
	// Shared is a connection that several buses use; nil for one of its own.
	Shared *Shared

	Stream        string // KUBERELAY_NATS_STREAM; "KUBERELAY" if empty
	SubjectPrefix string // KUBERELAY_NATS_SUBJECT_PREFIX, one token; "kuberelay" if empty
	Domain        string // KUBERELAY_NATS_JETSTREAM_DOMAIN, of the stream; the server's own if empty
	Cluster       string // KUBERELAY_CLUSTER_NAME; required
	Replicas      int    // KUBERELAY_NATS_REPLICAS; 1 if 0
	History       int    // KUBERELAY_NATS_HISTORY, messages kept of each object; 8 if 0
	ContentMode   ContentMode

	// At most one kind of credentials. They come from files, which are read again at each
	// reconnect, so that they can be rotated in place.
	User         string // KUBERELAY_NATS_USER, with PasswordFile
	PasswordFile string // KUBERELAY_NATS_PASSWORD_FILE
	TokenFile    string // KUBERELAY_NATS_TOKEN_FILE
	CredsFile    string // KUBERELAY_NATS_CREDS_FILE: a JWT and its seed, as nsc writes them
	NkeyFile     string // KUBERELAY_NATS_NKEY_FILE: a user's seed; another key needs a restart

	// TLS. The client uses TLS with a server that requires it even if none of these is set,
	// and verifies it with the system's authorities. Verification cannot be turned off.
	CAFile   string // KUBERELAY_NATS_TLS_CA_FILE
	CertFile string // KUBERELAY_NATS_TLS_CERT_FILE, with KeyFile
	KeyFile  string // KUBERELAY_NATS_TLS_KEY_FILE
	// ServerName is the name that the certificate of the server must have
	// (KUBERELAY_NATS_TLS_SERVER_NAME); the host of the URL if empty.
	ServerName string

	Reading *longwork.Counter // counts the messages that [Bus.Load] reads; nil for none

	// Permit, if set, is called before every request that changes the messages of the
	// stream. An error prevents the request. Compare-and-set does not reject a replaced
	// writer on a subject that no other writer has changed.
	Permit func() error

	// AckTimeout is how long to wait for an acknowledgement; 10 s if 0.
	AckTimeout time.Duration
	// MaxInFlight is the maximum number of messages without an acknowledgement; Publish
	// blocks beyond it. 512 if 0.
	MaxInFlight int

	// Invalid, if set, gets the messages that are not valid Kuberelay events.
	Invalid *publish.Invalid

	Logger     *slog.Logger          // none if nil
	Registerer prometheus.Registerer // no metrics if nil
}

// withDefaults sets empty fields to their defaults.
func (o Options) withDefaults() Options {
	o.Stream = cmp.Or(o.Stream, "KUBERELAY")
	o.SubjectPrefix = cmp.Or(o.SubjectPrefix, "kuberelay")
	o.ContentMode = cmp.Or(o.ContentMode, Binary)
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.History = cmp.Or(o.History, 8)
	o.AckTimeout = cmp.Or(o.AckTimeout, 10*time.Second)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 512)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func (o *Options) permitted() error {
	if o.Permit == nil {
		return nil
	}
	return o.Permit()
}

// inboxPrefix is the prefix of the forwarder's reply subjects. It allows the permissions of
// readers to exclude them.
const inboxPrefix = "_INBOX.kuberelay"

// connection returns the options of the connection.
func (o Options) connection() stream.Options {
	return stream.Options{
		URLs: o.URLs, InProcess: o.InProcess, Shared: o.Shared, Stream: o.Stream, SubjectPrefix: o.SubjectPrefix, Cluster: o.Cluster,
		User: o.User, PasswordFile: o.PasswordFile, TokenFile: o.TokenFile, CredsFile: o.CredsFile, NkeyFile: o.NkeyFile,
		CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, ServerName: o.ServerName, Domain: o.Domain,
		AckTimeout: o.AckTimeout, InboxPrefix: inboxPrefix, Reading: o.Reading, Logger: o.Logger, Registerer: o.Registerer,
	}
}

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
		return stream.Misconfigured("the acknowledgement timeout (%s) and the number in flight (%d) must be positive", o.AckTimeout, o.MaxInFlight)
	}
	return nil
}
