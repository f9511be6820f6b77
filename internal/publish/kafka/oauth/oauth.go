package oauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/elapsed"
)

var (
	// ErrUnavailable means that the token endpoint does not respond, or responds without a token. A
	// retry can help.
	ErrUnavailable = errors.New("the token endpoint is unavailable")
	// ErrRefused means that the token endpoint rejects the client or its request.
	ErrRefused = errors.New("the token endpoint refuses the client")
)

// Options specify the source of tokens: TokenFile, or TokenURL with the fields below it. The comment
// of each field names its environment variable, as error messages do.
type Options struct {
	TokenFile string // KUBERELAY_KAFKA_OAUTH_TOKEN_FILE

	TokenURL     string   // KUBERELAY_KAFKA_OAUTH_TOKEN_URL
	ClientID     string   // KUBERELAY_KAFKA_OAUTH_CLIENT_ID
	SecretFile   string   // KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE, read at each request for a token
	Scopes       []string // KUBERELAY_KAFKA_OAUTH_SCOPES
	Audience     string   // KUBERELAY_KAFKA_OAUTH_AUDIENCE; omitted from the request if empty
	CAFile       string   // KUBERELAY_KAFKA_OAUTH_CA_FILE; the system's certificate authorities if empty
	Logger       *slog.Logger
	now          func() time.Time // the clock; tests replace it
	fetchTimeout time.Duration
}

// Tokens provides the current token. It is safe for concurrent use.
type Tokens struct {
	opts   Options
	file   *credential.File[string] // nil if tokens come from an endpoint
	secret *credential.File[string]
	roots  *credential.File[*x509.CertPool] // nil for the system's certificate authorities

	mu      sync.Mutex
	current token
}

type token struct {
	value   string
	fetched elapsed.Moment
	expiry  time.Time // zero if unknown
}

// fetchTimeout bounds one request for a token.
const fetchTimeout = 8 * time.Second

// New reads the files. It sends no request.
func New(o Options) (t *Tokens, err error) {
	if o.now == nil {
		o.now = time.Now
	}
	if o.fetchTimeout == 0 {
		o.fetchTimeout = fetchTimeout
	}
	t = &Tokens{opts: o}
	if o.TokenFile != "" {
		t.file, err = credential.NewFile("KUBERELAY_KAFKA_OAUTH_TOKEN_FILE", o.Logger, func() (string, error) {
			text, err := credential.Secret(o.TokenFile)
			if err == nil && !isToken(text) {
				err = errors.New(o.TokenFile + " contains no bearer token")
			}
			return text, err
		})
		return t, err
	}
	t.secret, err = credential.NewFile("KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE", o.Logger, func() (string, error) { return credential.Secret(o.SecretFile) })
	if err == nil && o.CAFile != "" {
		t.roots, err = credential.NewFile("KUBERELAY_KAFKA_OAUTH_CA_FILE", o.Logger, func() (*x509.CertPool, error) { return credential.Roots(o.CAFile) })
	}
	return t, err
}

// bearer matches a bearer token in an HTTP header (RFC 6750, section 2.1).
var bearer = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

func isToken(s string) bool { return bearer.MatchString(s) }

// Get returns the current token. With an endpoint, it fetches a token if there is no current one or
// if the current one is due for renewal. If the fetch fails, it returns the previous token if that
// is still valid.
func (t *Tokens) Get(ctx context.Context) (string, error) {
	if t.file != nil {
		return t.file.Get(), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.renew(ctx)
	return t.current.value, err
}

// Renew fetches a token if the current one is due for renewal, and reports whether it fetched one.
// It does nothing if the token comes from a file, before the first [Tokens.Get], or if the expiry
// of the token is unknown.
func (t *Tokens) Renew(ctx context.Context) bool {
	if t.file != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current.expiry.IsZero() {
		return false
	}
	renewed, err := t.renew(ctx)
	return renewed && err == nil
}

// renew replaces a token that is due. An error means that no token is available.
func (t *Tokens) renew(ctx context.Context) (renewed bool, err error) {
	now := t.opts.now()
	if !t.current.due(now) {
		return false, nil
	}
	next, err := t.fetch(ctx)
	switch {
	case err == nil:
		t.current = next
		return true, nil
	case t.current.valid(now):
		log := t.opts.Logger
		if !t.current.expiry.IsZero() {
			log = log.With("expires", t.current.expiry)
		}
		log.Warn("cannot renew the token for Kafka, using the last one until it expires", "err", err)
		return false, nil
	}
	t.current = token{}
	return false, err
}

// due reports whether to fetch the next token. A token with an unknown expiry is always due, because it might
// have expired.
func (k token) due(now time.Time) bool {
	return k.expiry.IsZero() || k.fetched.Age(now) >= k.lifetime()*4/5
}

func (k token) valid(now time.Time) bool {
	return k.value != "" && (k.expiry.IsZero() || k.fetched.Age(now) < k.lifetime())
}

func (k token) lifetime() time.Duration { return k.expiry.Sub(k.fetched.Wall) }

// fetch requests a token from the endpoint.
func (t *Tokens) fetch(ctx context.Context) (token, error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.fetchTimeout)
	defer cancel()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if t.roots != nil {
		transport.TLSClientConfig.RootCAs = t.roots.Get()
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // never send the secret to another host
	c := clientcredentials.Config{
		ClientID: t.opts.ClientID, ClientSecret: t.secret.Get(), TokenURL: t.opts.TokenURL, Scopes: t.opts.Scopes,
		AuthStyle: oauth2.AuthStyleInHeader, // every endpoint supports it (RFC 6749, section 2.3.1), and Kafka's own client uses it
	}
	if t.opts.Audience != "" {
		c.EndpointParams = url.Values{"audience": {t.opts.Audience}}
	}
	began := t.opts.now()
	answer, err := c.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	switch {
	case err != nil:
		return token{}, t.explain(err)
	case !isToken(answer.AccessToken):
		return token{}, fmt.Errorf("%w: %s: the response has no bearer token", ErrUnavailable, t.address())
	}
	next := token{value: answer.AccessToken, fetched: elapsed.At(began)}
	if !answer.Expiry.IsZero() {
		next.expiry = began.Add(time.Until(answer.Expiry)) // expires_in, measured by the clock of this machine
	} else if claims, ok := claimsOf(answer.AccessToken); ok && claims.Expires > 0 {
		next.expiry = time.Unix(int64(claims.Expires), 0)
	}
	return next, nil
}

// address returns the URL of the endpoint without its query, which can contain credentials.
func (t *Tokens) address() string {
	address, _, _ := strings.Cut(t.opts.TokenURL, "?")
	return address
}

// explain describes a failed request without the body of the response, which can repeat the client's
// credentials.
func (t *Tokens) explain(err error) error {
	var answer *oauth2.RetrieveError
	var failed *url.Error
	where := t.address() + " (KUBERELAY_KAFKA_OAUTH_TOKEN_URL)"
	switch {
	case errors.As(err, &answer):
		status, kind := answer.Response.StatusCode, ErrUnavailable
		if status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
			kind = ErrRefused
		}
		words := fmt.Sprintf("%d %s", status, http.StatusText(status))
		if code := answer.ErrorCode; errorCode.MatchString(code) {
			words += ", " + code
		}
		return fmt.Errorf("%w: %s: %s", kind, where, words)
	case errors.As(err, &failed):
		return fmt.Errorf("%w: %s: %w%s", ErrUnavailable, where, failed.Err, hint(failed.Err))
	}
	return fmt.Errorf("%w: %s: the response is not a token", ErrUnavailable, where)
}

// errorCode matches the error codes of RFC 6749, section 5.2.
var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

func hint(err error) string {
	var authority x509.UnknownAuthorityError
	if errors.As(err, &authority) {
		return ": set KUBERELAY_KAFKA_OAUTH_CA_FILE to a file with the CA certificate of the endpoint"
	}
	return ""
}

// claims are the token claims that this package reads.
type claims struct {
	Subject string  `json:"sub"`
	Expires float64 `json:"exp"` // seconds since 1970
}

// claimsOf parses a token that is a JWT, without verifying it.
func claimsOf(text string) (c claims, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return c, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	return c, err == nil && json.Unmarshal(payload, &c) == nil
}

// Subject returns the sub claim of the current token, which brokers use as the user name by default.
// It returns "" if the subject is unknown.
func (t *Tokens) Subject() string {
	var text string
	if t.file != nil {
		text = t.file.Last()
	} else {
		t.mu.Lock()
		text = t.current.value
		t.mu.Unlock()
	}
	c, _ := claimsOf(text)
	return c.Subject
}
