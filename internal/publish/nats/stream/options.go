package stream

import (
	"cmp"
	"log/slog"
	"net/url"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/longwork"
)

// Options configures a Conn. The comments name the environment variables that set the fields.
type Options struct {
	// URLs are the servers to try, without credentials (KUBERELAY_NATS_URL). InProcess makes them
	// unnecessary.
	URLs []string
	// InProcess, if set, provides an in-process connection to a server, without a socket.
	InProcess natsgo.InProcessConnProvider
	// Shared is a connection that several Conns use. If nil, the Conn has its own connection.
	Shared *Shared

	Stream        string // KUBERELAY_NATS_STREAM; "KUBERELAY" if empty
	SubjectPrefix string // KUBERELAY_NATS_SUBJECT_PREFIX, one token; "kuberelay" if empty
	Domain        string // KUBERELAY_NATS_JETSTREAM_DOMAIN, the domain of the stream; the server's own domain if empty
	Cluster       string // KUBERELAY_CLUSTER_NAME; empty for all clusters

	// At most one kind of credentials may be set. They are read from files again at each reconnect,
	// so that they can be rotated in place.
	User         string // KUBERELAY_NATS_USER, with PasswordFile
	PasswordFile string // KUBERELAY_NATS_PASSWORD_FILE
	TokenFile    string // KUBERELAY_NATS_TOKEN_FILE
	CredsFile    string // KUBERELAY_NATS_CREDS_FILE: a JWT and its seed, as nsc writes them
	NkeyFile     string // KUBERELAY_NATS_NKEY_FILE: a user's seed; another key needs a restart
	// TokenOptional means that TokenFile might not exist yet, because the server creates it when it
	// starts. Without the file, the client presents no token.
	TokenOptional bool

	// TLS settings. Even if none is set, the client uses TLS with a server that requires it, and
	// verifies the server with the system's authorities. Verification cannot be turned off.
	CAFile   string // KUBERELAY_NATS_TLS_CA_FILE
	CertFile string // KUBERELAY_NATS_TLS_CERT_FILE, with KeyFile
	KeyFile  string // KUBERELAY_NATS_TLS_KEY_FILE
	// ServerName is the name that the server's certificate must have
	// (KUBERELAY_NATS_TLS_SERVER_NAME). If empty, it is the host in the URL.
	ServerName string

	// AckTimeout bounds the wait for a response (KUBERELAY_NATS_ACK_TIMEOUT). The default is 10 s.
	AckTimeout time.Duration
	// InboxPrefix is the prefix of reply subjects. If empty, it is "_INBOX".
	InboxPrefix string

	// Reading counts the messages that [Conn.Load] and the subscriptions of package reader read. It
	// may be nil.
	Reading *longwork.Counter

	Logger     *slog.Logger          // nil for no logs
	Registerer prometheus.Registerer // nil for no metrics
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	o.Stream = cmp.Or(o.Stream, "KUBERELAY")
	o.SubjectPrefix = cmp.Or(o.SubjectPrefix, "kuberelay")
	o.AckTimeout = cmp.Or(o.AckTimeout, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// name returns the name of the connection that the server shows.
func (o Options) name() string { return strings.TrimSpace("kuberelay " + o.Cluster) }

// Subjects returns the filter for all subjects of Kuberelay in the stream.
func (o Options) Subjects() string { return o.SubjectPrefix + ".>" }

// validate checks everything that needs no connection, except the contents of files.
func (o Options) validate() error {
	if len(o.URLs) == 0 && o.InProcess == nil {
		return Misconfigured("no server: set KUBERELAY_NATS_URL")
	}
	for _, u := range o.URLs {
		if err := validateURL(u); err != nil {
			return err
		}
	}
	switch {
	case strings.ContainsAny(o.Stream, ".*>/\\ \t\r\n"):
		return Misconfigured("KUBERELAY_NATS_STREAM %q contains a character that a stream name must not contain", o.Stream)
	case strings.ContainsFunc(o.SubjectPrefix, func(r rune) bool { return !isToken(r) }):
		return Misconfigured("KUBERELAY_NATS_SUBJECT_PREFIX %q is not one token of letters, digits, hyphens, and underscores", o.SubjectPrefix)
	case strings.ContainsFunc(o.Domain, func(r rune) bool { return !isToken(r) }):
		return Misconfigured("KUBERELAY_NATS_JETSTREAM_DOMAIN %q is not one token of letters, digits, hyphens, and underscores", o.Domain)
	case o.AckTimeout < 0:
		return Misconfigured("the acknowledgement timeout (%s) must not be negative", o.AckTimeout)
	}
	return nil
}

func isToken(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

// validateURL checks a server URL. Its errors quote only the scheme and host, because the rest can
// contain a password.
func validateURL(s string) error {
	full := s
	if !strings.Contains(s, "://") {
		full = "nats://" + s // nats.go accepts host:port
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return Misconfigured("KUBERELAY_NATS_URL cannot be parsed; use nats://host:4222")
	case u.User != nil:
		return Misconfigured("KUBERELAY_NATS_URL of host %q contains credentials: "+
			"put them into a file and name it in KUBERELAY_NATS_PASSWORD_FILE or KUBERELAY_NATS_TOKEN_FILE", u.Host)
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
		return Misconfigured("KUBERELAY_NATS_URL has the scheme %q: use nats, tls, ws, or wss", u.Scheme)
	case u.Hostname() == "":
		return Misconfigured("KUBERELAY_NATS_URL has no host; use nats://host:4222")
	}
	return nil
}
