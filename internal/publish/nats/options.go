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

// Options configures a Bus. The comments name the environment variables that set the fields.
type Options struct {
	// URLs are the servers to try, without credentials (KUBERELAY_NATS_URL). InProcess makes them
	// unnecessary.
	URLs []string
	// InProcess, if set, provides an in-process connection to a server, without a socket.
	InProcess natsgo.InProcessConnProvider
	// Shared is a connection that several buses use. If nil, the bus has its own connection.
	Shared *Shared

	Stream        string // KUBERELAY_NATS_STREAM; "KUBERELAY" if empty
	SubjectPrefix string // KUBERELAY_NATS_SUBJECT_PREFIX, one token; "kuberelay" if empty
	Domain        string // KUBERELAY_NATS_JETSTREAM_DOMAIN, the domain of the stream; the server's own domain if empty
	Cluster       string // KUBERELAY_CLUSTER_NAME; required
	Replicas      int    // KUBERELAY_NATS_REPLICAS; 1 if 0
	History       int    // KUBERELAY_NATS_HISTORY, the number of messages kept per object; 8 if 0
	ContentMode   ContentMode

	// At most one kind of credentials may be set. They are read from files again at each reconnect,
	// so that they can be rotated in place.
	User         string // KUBERELAY_NATS_USER, with PasswordFile
	PasswordFile string // KUBERELAY_NATS_PASSWORD_FILE
	TokenFile    string // KUBERELAY_NATS_TOKEN_FILE
	CredsFile    string // KUBERELAY_NATS_CREDS_FILE: a JWT and its seed, as nsc writes them
	NkeyFile     string // KUBERELAY_NATS_NKEY_FILE: a user's seed; another key needs a restart

	// TLS settings. Even if none is set, the client uses TLS with a server that requires it, and
	// verifies the server with the system's authorities. Verification cannot be turned off.
	CAFile   string // KUBERELAY_NATS_TLS_CA_FILE
	CertFile string // KUBERELAY_NATS_TLS_CERT_FILE, with KeyFile
	KeyFile  string // KUBERELAY_NATS_TLS_KEY_FILE
	// ServerName is the name that the server's certificate must have
	// (KUBERELAY_NATS_TLS_SERVER_NAME). If empty, it is the host in the URL.
	ServerName string

	Reading *longwork.Counter // counts the messages that [Bus.Load] reads; may be nil

	// Permit, if set, is called before every request that changes the messages of the stream. An
	// error prevents the request. Compare-and-set is not sufficient: it accepts messages from a
	// replaced writer until the new writer publishes to the same subject.
	Permit func() error

	// AckTimeout bounds the wait for an acknowledgement (KUBERELAY_NATS_ACK_TIMEOUT). The default
	// is 10 s.
	AckTimeout time.Duration
	// MaxInFlight is the maximum number of messages without an acknowledgement
	// (KUBERELAY_NATS_MAX_IN_FLIGHT). At the limit, Publish blocks. The default is 512.
	MaxInFlight int

	// Invalid, if set, receives the messages that are not valid Kuberelay events.
	Invalid *publish.Invalid

	Logger     *slog.Logger          // nil for no logs
	Registerer prometheus.Registerer // nil for no metrics
}

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

// inboxPrefix is the prefix of the forwarder's reply subjects. With this separate prefix, the
// permissions of readers can exclude these subjects.
const inboxPrefix = "_INBOX.kuberelay"

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
		return stream.Misconfigured("the acknowledgement timeout (%s) and the number in flight (%d) must not be negative", o.AckTimeout, o.MaxInFlight)
	}
	return nil
}
