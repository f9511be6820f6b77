package broker

import (
	"cmp"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/awsiam"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/oauth"
)

// OAuth configures the source of the OAUTHBEARER tokens.
type OAuth = oauth.Options

// Options configures a Client. The comment of a field names the environment variable that sets
// the field. Error messages use that name.
type Options struct {
	// Addrs are the bootstrap brokers, as host:port, or as host for port 9092
	// (KUBERELAY_KAFKA_BROKERS). One reachable broker is enough.
	Addrs []string
	// Shared holds connections that several Clients use. If it is nil, the Client has its own
	// connections.
	Shared *Shared

	// TLS enables TLS (KUBERELAY_KAFKA_TLS). The Client verifies broker certificates with CAFile
	// or the system's authorities. Verification cannot be turned off.
	TLS      bool
	CAFile   string // KUBERELAY_KAFKA_TLS_CA_FILE, PEM
	CertFile string // KUBERELAY_KAFKA_TLS_CERT_FILE, PEM, with KeyFile
	KeyFile  string // KUBERELAY_KAFKA_TLS_KEY_FILE, PEM, not encrypted
	// ServerName is the name that the certificates of all brokers must have
	// (KUBERELAY_KAFKA_TLS_SERVER_NAME). If it is empty, each certificate must have the host
	// name of its broker.
	ServerName string

	// SASLMechanism is one of the mechanism constants of package login, or "" for none
	// (KUBERELAY_KAFKA_SASL_MECHANISM).
	SASLMechanism string
	User          string // KUBERELAY_KAFKA_USER
	PasswordFile  string // KUBERELAY_KAFKA_PASSWORD_FILE; a trailing newline is ignored
	AWSRegion     string // KUBERELAY_KAFKA_AWS_REGION, for AWS_MSK_IAM; the AWS SDK finds the credentials
	OAuth         OAuth  // for OAUTHBEARER, which uses neither User nor PasswordFile; OAuth.Logger is ignored

	ClientID string // for the logs and quotas of the brokers; "kuberelay" if empty

	// RequestTimeout bounds the wait for a response. The default is 10 s. A broker has half of
	// this time to collect the acknowledgements of the replicas.
	RequestTimeout time.Duration

	Logger *slog.Logger // none if nil
}

// withDefaults sets empty fields to their defaults. It copies Addrs.
func (o Options) withDefaults() Options {
	addrs := make([]string, len(o.Addrs))
	for i, a := range o.Addrs {
		host := strings.Trim(a, "[]")
		if host != "" && (!strings.Contains(host, ":") || net.ParseIP(host) != nil) {
			a = net.JoinHostPort(host, "9092")
		}
		addrs[i] = a
	}
	o.Addrs = addrs
	o.ClientID = cmp.Or(o.ClientID, "kuberelay")
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// validate checks the options as far as possible without a connection and without reading files.
func (o Options) validate() error {
	if len(o.Addrs) == 0 {
		return failure.Misconfigured("no broker: set KUBERELAY_KAFKA_BROKERS")
	}
	for _, a := range o.Addrs {
		if err := validateAddr(a); err != nil {
			return err
		}
	}
	switch {
	case o.CAFile != "" && !o.TLS:
		return failure.Misconfigured("KUBERELAY_KAFKA_TLS_CA_FILE is %s, but TLS is off: set KUBERELAY_KAFKA_TLS=true", o.CAFile)
	case o.CertFile != "" && !o.TLS:
		return failure.Misconfigured("KUBERELAY_KAFKA_TLS_CERT_FILE is %s, but TLS is off: set KUBERELAY_KAFKA_TLS=true", o.CertFile)
	case o.ServerName != "" && !o.TLS:
		return failure.Misconfigured("KUBERELAY_KAFKA_TLS_SERVER_NAME is %q, but TLS is off: set KUBERELAY_KAFKA_TLS=true", o.ServerName)
	case (o.CertFile == "") != (o.KeyFile == ""):
		return failure.Misconfigured("KUBERELAY_KAFKA_TLS_CERT_FILE (%q) and KUBERELAY_KAFKA_TLS_KEY_FILE (%q) must both be set", o.CertFile, o.KeyFile)
	case o.RequestTimeout < 0:
		return failure.Misconfigured("the request timeout is %s: it must not be negative", o.RequestTimeout)
	}
	return o.validateSASL()
}

func (o Options) validateSASL() error {
	switch o.SASLMechanism {
	case "":
		if o.User != "" || o.PasswordFile != "" {
			return failure.Misconfigured("KUBERELAY_KAFKA_USER (%q) and KUBERELAY_KAFKA_PASSWORD_FILE (%q) have no effect: "+
				"set KUBERELAY_KAFKA_SASL_MECHANISM to %s, %s, or %s", o.User, o.PasswordFile, login.Plain, login.ScramSHA256, login.ScramSHA512)
		}
	case login.OAuthBearer:
		if a := o.OAuth; (a.TokenFile == "") == (a.TokenURL == "") || a.TokenURL != "" && (a.ClientID == "" || a.SecretFile == "") {
			return failure.Misconfigured("KUBERELAY_KAFKA_SASL_MECHANISM is %s, which needs either KUBERELAY_KAFKA_OAUTH_TOKEN_FILE (%q), or KUBERELAY_KAFKA_OAUTH_TOKEN_URL (%q) with "+
				"KUBERELAY_KAFKA_OAUTH_CLIENT_ID (%q) and KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE (%q)", login.OAuthBearer, a.TokenFile, a.TokenURL, a.ClientID, a.SecretFile)
		}
	case login.Plain, login.ScramSHA256, login.ScramSHA512:
		if o.User == "" || o.PasswordFile == "" {
			return failure.Misconfigured("KUBERELAY_KAFKA_SASL_MECHANISM is %s, which needs KUBERELAY_KAFKA_USER (%q) and KUBERELAY_KAFKA_PASSWORD_FILE (%q)",
				o.SASLMechanism, o.User, o.PasswordFile)
		}
	case login.AWSIAM:
		if !o.TLS {
			return failure.Misconfigured("KUBERELAY_KAFKA_SASL_MECHANISM is %s, which needs TLS: set KUBERELAY_KAFKA_TLS=true", login.AWSIAM)
		}
	default:
		return failure.Misconfigured("KUBERELAY_KAFKA_SASL_MECHANISM is %q: use %s, %s, %s, %s, or %s", o.SASLMechanism, login.Plain, login.ScramSHA256, login.ScramSHA512, login.OAuthBearer, login.AWSIAM)
	}
	return nil
}

// validateAddr returns an error if an address is not host:port. The error does not quote an address
// that could contain credentials.
func validateAddr(a string) error {
	if strings.Contains(a, "@") {
		return failure.Misconfigured("KUBERELAY_KAFKA_BROKERS contains credentials: put the password into a file " +
			"and name it in KUBERELAY_KAFKA_PASSWORD_FILE")
	}
	host, port, err := net.SplitHostPort(a)
	if n, convErr := strconv.Atoi(port); err != nil || convErr != nil || n < 1 || n > 65535 ||
		host == "" || strings.ContainsAny(host, "/, \t\r\n") {
		return failure.Misconfigured("KUBERELAY_KAFKA_BROKERS has the broker %q: use host:port, for example host:9092, and separate brokers with commas", a)
	}
	return nil
}

// brokers names the brokers for errors and commands.
func (o Options) brokers() string { return strings.Join(o.Addrs, ",") }

// mechanism returns the configured SASL mechanism, or nil without SASL.
func (o Options) mechanism() (login.Mechanism, error) {
	switch o.SASLMechanism {
	case "":
		return nil, nil
	case login.OAuthBearer:
		if !o.TLS {
			o.Logger.Warn("token is sent unencrypted: use TLS", "setting", "KUBERELAY_KAFKA_TLS")
		}
		own := o.OAuth
		own.Logger = o.Logger
		return login.Bearer(own)
	case login.AWSIAM:
		return login.IAM(awsiam.Options{Region: o.AWSRegion, Brokers: o.Addrs, Logger: o.Logger})
	}
	m, err := login.Password(o.SASLMechanism, o.User, o.PasswordFile, o.Logger)
	if err == nil && o.SASLMechanism == login.Plain && !o.TLS {
		o.Logger.Warn("password is sent unencrypted: use TLS, or SCRAM instead of PLAIN", "setting", "KUBERELAY_KAFKA_TLS")
	}
	return m, err
}

// files returns a watcher for the certificate and credential files that can be rotated.
func (o Options) files() *credential.Watcher {
	return credential.NewWatcher(o.CAFile, o.CertFile, o.KeyFile, o.PasswordFile, o.OAuth.TokenFile)
}
