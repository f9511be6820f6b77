package stream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	natsgo "github.com/nats-io/nats.go"
)

// dial connects. If it fails and a retry can succeed, the client retries in the background.
func (l *link) dial(opts []natsgo.Option) error {
	urls := strings.Join(l.opts.URLs, ",")
	var err error
	l.NC, err = natsgo.Connect(urls, opts...)
	if err == nil {
		return nil
	}
	if isPermanent(err) {
		return Misconfigured("connect to %s: %w%s", l.Servers(), err, l.opts.remedy(err))
	}
	l.log.Warn("cannot reach the bus, retrying", "servers", l.Servers(), "err", err)
	l.noteFailure(err)
	l.NC, err = natsgo.Connect(urls, append(opts, natsgo.RetryOnFailedConnect(true))...)
	if err != nil {
		return Misconfigured("connect to %s: %w", l.Servers(), err)
	}
	return nil
}

// remedy returns a suffix for the text of a connection error. The suffix says what to change. It is
// empty if the error already says so.
func (o Options) remedy(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.Is(err, natsgo.ErrAuthorization) && o.TokenOptional:
		return ": the built-in server expects the token in nats/token of its KUBERELAY_DATA_DIR, and " + o.TokenFile + " does not contain it; " +
			"set KUBERELAY_DATA_DIR as for the forwarder, or name a copy of the token in KUBERELAY_NATS_TOKEN_FILE"
	case errors.Is(err, natsgo.ErrAuthorization) && o.CertFile == "" && o.credentialSettings() == "":
		return ": the server requires credentials, and none are set; set KUBERELAY_NATS_TOKEN_FILE, KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE, " +
			"KUBERELAY_NATS_CREDS_FILE, or KUBERELAY_NATS_NKEY_FILE"
	case errors.Is(err, natsgo.ErrAuthorization) && o.credentialSettings() != "":
		return ": the server rejects the credentials in " + o.credentialSettings() + "; replace them with valid ones"
	case errors.As(err, &authority):
		return "; set KUBERELAY_NATS_TLS_CA_FILE to the authorities that signed its certificate"
	case errors.As(err, &host):
		return "; add this host to its certificate (for a built-in server, KUBERELAY_NATS_LISTEN_TLS_CERT_FILE), or connect to a host that the certificate names, or set KUBERELAY_NATS_TLS_SERVER_NAME to one of its names"
	default:
		return ""
	}
}

// credentialSettings returns the names of the configured credential variables.
func (o Options) credentialSettings() string {
	switch {
	case o.PasswordFile != "":
		return "KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE"
	case o.TokenFile != "":
		return "KUBERELAY_NATS_TOKEN_FILE"
	case o.CredsFile != "":
		return "KUBERELAY_NATS_CREDS_FILE"
	case o.NkeyFile != "":
		return "KUBERELAY_NATS_NKEY_FILE"
	default:
		return ""
	}
}

// isPermanent reports whether a retry cannot fix a connection error.
func isPermanent(err error) bool {
	for _, target := range []error{
		natsgo.ErrAuthorization, natsgo.ErrAuthExpired, natsgo.ErrAuthRevoked, natsgo.ErrAccountAuthExpired,
		natsgo.ErrNkeysNotSupported, natsgo.ErrSecureConnRequired, natsgo.ErrSecureConnWanted,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	// The client finds a TLS error in one of three ways. It detects the error itself, it gets an
	// alert from the server ("remote error"), which in TLS 1.3 arrives after the handshake, or the
	// server closes the connection and the client misses the alert.
	var network *net.OpError
	if errors.As(err, &network) && (network.Timeout() || network.Op == "remote error") {
		return !network.Timeout()
	}
	return errors.Is(err, natsgo.ErrTLS)
}

// Servers returns the names of the servers for logs and errors, without credentials.
func (l *link) Servers() string {
	if l.opts.InProcess != nil {
		return "the server in this process"
	}
	redacted := make([]string, len(l.opts.URLs))
	for i, s := range l.opts.URLs {
		redacted[i] = redact(s)
	}
	return strings.Join(redacted, ",")
}

// redact removes everything from a URL that might be a credential.
func redact(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(unreadable URL)"
	}
	if u.Host == "" { // the form host:port, which nats.go accepts
		return s
	}
	return fmt.Sprintf("%s://%s", u.Scheme, u.Host)
}

// connectedTo returns the name of the server for the log. Without a socket, the client returns a
// made-up address.
func (l *link) connectedTo(nc *natsgo.Conn) string {
	if l.opts.InProcess != nil {
		return "built in"
	}
	return redact(nc.ConnectedUrl())
}
