package nats

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrMisconfigured is in the chain of an error that waiting does not cure: a
// malformed URL, a missing file, refused credentials, a stream with wrong settings.
// The error says what is wrong and what to do.
var ErrMisconfigured = errors.New("nats is misconfigured")

// ContentMode is how a CloudEvent is laid out in a message.
type ContentMode string

const (
	// Binary: attributes in headers, the bare Kubernetes object as data.
	Binary ContentMode = "binary"
	// Structured: the whole CloudEvent as one JSON document.
	Structured ContentMode = "structured"
)

// Options says where the bus is and how to speak to it. The comment of a field
// names the environment variable that errors speak of.
type Options struct {
	// URLs are the servers to try, without credentials in them
	// (KUBERELAY_NATS_URL). They are not needed with InProcess.
	URLs []string
	// InProcess, if set, is a server in this process to talk to without a socket.
	InProcess natsgo.InProcessConnProvider

	Stream        string // KUBERELAY_NATS_STREAM; "KUBERELAY" if empty
	SubjectPrefix string // KUBERELAY_NATS_SUBJECT_PREFIX, one token; "kuberelay" if empty
	Cluster       string // KUBERELAY_CLUSTER_NAME; required unless ReadOnly
	Replicas      int    // KUBERELAY_NATS_REPLICAS; 1 if 0
	History       int    // KUBERELAY_NATS_HISTORY, messages kept of each object; 8 if 0
	ContentMode   ContentMode

	// ReadOnly is for subscribers: the stream is neither created nor checked,
	// only looked for, and every publish fails.
	ReadOnly bool

	// At most one kind of credentials. They come from files, which are read again
	// at each reconnect, so that they can be rotated in place.
	User         string // KUBERELAY_NATS_USER, with PasswordFile
	PasswordFile string // KUBERELAY_NATS_PASSWORD_FILE
	TokenFile    string // KUBERELAY_NATS_TOKEN_FILE
	CredsFile    string // KUBERELAY_NATS_CREDS_FILE: a JWT and its seed, as nsc writes them
	NkeyFile     string // KUBERELAY_NATS_NKEY_FILE: a user's seed; a new seed of the same key only

	// TLS. A server that asks for it gets it without any of these, verified by
	// the system's authorities. There is no way to skip verification.
	CAFile   string // KUBERELAY_NATS_TLS_CA_FILE
	CertFile string // KUBERELAY_NATS_TLS_CERT_FILE, with KeyFile
	KeyFile  string // KUBERELAY_NATS_TLS_KEY_FILE

	// Permit, if set, is asked right before anything is handed to the connection that
	// changes the stream's messages, and refuses it by an error. A subject that no other
	// writer has touched takes what a writer sends who has been replaced.
	Permit func() error

	// AckTimeout is how long an acknowledgement is waited for; 10 s if 0.
	AckTimeout time.Duration
	// MaxInFlight is how many messages may await theirs; Publish blocks beyond
	// it. 512 if 0.
	MaxInFlight int

	Logger     *slog.Logger          // none if nil
	Registerer prometheus.Registerer // metrics are kept nowhere if nil
}

// withDefaults fills in what is empty.
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

// misconfigured makes an error that waiting does not cure.
func misconfigured(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMisconfigured, fmt.Errorf(format, args...))
}

// validate looks at everything that can be judged without a connection, files
// apart.
func (o Options) validate() error {
	if len(o.URLs) == 0 && o.InProcess == nil {
		return misconfigured("no server: set KUBERELAY_NATS_URL")
	}
	for _, u := range o.URLs {
		if err := validateURL(u); err != nil {
			return err
		}
	}
	switch {
	case o.Cluster == "" && !o.ReadOnly:
		return misconfigured("the cluster has no name: set KUBERELAY_CLUSTER_NAME")
	case strings.ContainsAny(o.Stream, ".*>/\\ \t\r\n"):
		return misconfigured("KUBERELAY_NATS_STREAM %q holds a character that a stream's name cannot", o.Stream)
	case strings.ContainsFunc(o.SubjectPrefix, func(r rune) bool { return !isToken(r) }):
		return misconfigured("KUBERELAY_NATS_SUBJECT_PREFIX %q is not one token of letters, digits, '-' and '_'", o.SubjectPrefix)
	case o.Replicas < 1 || o.Replicas > 5:
		return misconfigured("KUBERELAY_NATS_REPLICAS is %d: JetStream takes 1 to 5", o.Replicas)
	case o.History < 1:
		return misconfigured("KUBERELAY_NATS_HISTORY is %d: at least the last event of an object must be kept", o.History)
	case o.ContentMode != Binary && o.ContentMode != Structured:
		return misconfigured("KUBERELAY_CONTENT_MODE is %q: use %q or %q", o.ContentMode, Binary, Structured)
	case o.AckTimeout < 0 || o.MaxInFlight < 0:
		return misconfigured("the acknowledgement timeout (%s) and the number in flight (%d) must be positive", o.AckTimeout, o.MaxInFlight)
	}
	return nil
}

func isToken(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

// validateURL never quotes its argument beyond scheme and host: the rest may hold
// a password.
func validateURL(s string) error {
	full := s
	if !strings.Contains(s, "://") {
		full = "nats://" + s // as nats.go takes it
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return misconfigured("KUBERELAY_NATS_URL cannot be parsed; it should look like nats://host:4222")
	case u.User != nil:
		return misconfigured("KUBERELAY_NATS_URL of host %q has credentials in it: "+
			"put them into a file and name it in KUBERELAY_NATS_PASSWORD_FILE or KUBERELAY_NATS_TOKEN_FILE", u.Host)
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
		return misconfigured("KUBERELAY_NATS_URL has the scheme %q: use nats, tls, ws or wss", u.Scheme)
	case u.Hostname() == "":
		return misconfigured("KUBERELAY_NATS_URL has no host; it should look like nats://host:4222")
	}
	return nil
}
