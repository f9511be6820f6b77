package oauth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/elapsed"
)

const secret = "Hunter2Hunter2"

func written(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// endpoint is a token endpoint. Its tokens expire after 100 s, and the test moves its clock.
type endpoint struct {
	*httptest.Server

	now    time.Time
	issued int
	answer func(http.ResponseWriter) // responds instead of a token, if set
	form   map[string][]string
	log    bytes.Buffer
}

func newEndpoint(t *testing.T) (*endpoint, *Tokens) {
	e := &endpoint{now: time.Unix(1_800_000_000, 0)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		e.form = r.PostForm
		if id, password, _ := r.BasicAuth(); id != "relay" || password != secret {
			e.answer = status(http.StatusUnauthorized, `{"error":"invalid_client","error_description":"not `+secret+`"}`)
		}
		if e.answer != nil {
			e.answer(w)
			return
		}
		e.issued++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":100}`, e.issued)
	}))
	t.Cleanup(e.Close)
	tokens, err := New(Options{
		TokenURL: e.URL + "?p=" + secret, ClientID: "relay", SecretFile: written(t, secret+"\n"), Scopes: []string{"a", "b"}, Audience: "kafka",
		Logger: slog.New(slog.NewTextHandler(&e.log, nil)), now: func() time.Time { return e.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, tokens
}

func status(code int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// TestRenewal verifies that a token is fetched once and renewed after four fifths of its lifetime.
// If the renewal fails, the token stays in use until it expires.
func TestRenewal(t *testing.T) {
	e, tokens := newEndpoint(t)
	get := func(want string) {
		t.Helper()
		if got, err := tokens.Get(t.Context()); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if tokens.Renew(t.Context()) || e.issued != 0 {
		t.Error("a token that nobody uses was fetched")
	}
	get("token-1")
	if got := e.form; got["scope"][0] != "a b" || got["audience"][0] != "kafka" || got["grant_type"][0] != "client_credentials" {
		t.Errorf("asked with %v", got)
	}
	e.now = e.now.Add(79 * time.Second)
	if tokens.Renew(t.Context()) {
		t.Error("renewed too early")
	}
	get("token-1")
	e.now = e.now.Add(time.Second)
	if !tokens.Renew(t.Context()) {
		t.Error("not renewed after 80 s")
	}
	get("token-2")
	e.answer = status(http.StatusInternalServerError, "token-2 "+secret)
	e.now = e.now.Add(99 * time.Second)
	if tokens.Renew(t.Context()) {
		t.Error("renewed by a failure")
	}
	get("token-2")
	if log := e.log.String(); !strings.Contains(log, "cannot renew the token for Kafka") || strings.Contains(log, secret) || strings.Contains(log, "token-2") {
		t.Errorf("the log has %s", log)
	}
	e.now = e.now.Add(time.Second)
	if got, err := tokens.Get(t.Context()); !errors.Is(err, ErrUnavailable) || got != "" {
		t.Errorf("after its end: %q, %v", got, err)
	}
	e.answer = nil
	get("token-3")
}

// TestTheClockOfTokens verifies that a token is due after four fifths of its lifetime on either clock.
func TestTheClockOfTokens(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		monotonic, wall time.Duration // since the token was fetched
		due             bool
	}{
		"just fetched":               {0, 0, false},
		"the machine has slept":      {0, time.Hour, true},
		"the wall clock is set back": {time.Hour, 0, true},
	} {
		k := token{value: "a", fetched: elapsed.Moment{Monotonic: now.Add(-c.monotonic), Wall: now.Round(0).Add(-c.wall)}}
		k.expiry = k.fetched.Wall.Add(time.Hour)
		if k.due(now) != c.due || k.valid(now) == c.due {
			t.Errorf("%s: due is %t and valid is %t, want due to be %t", name, k.due(now), k.valid(now), c.due)
		}
	}
}

// TestUnknownLifetime verifies that each connection gets a new token if nothing says how long a token is valid.
// The forwarder once kept the first such token, even after the brokers rejected it as expired.
func TestUnknownLifetime(t *testing.T) {
	e, tokens := newEndpoint(t)
	want := func(want string) {
		t.Helper()
		if got, err := tokens.Get(t.Context()); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	for _, opaque := range []string{"opaque-1", "opaque-2"} {
		e.answer = status(http.StatusOK, `{"access_token":"`+opaque+`","token_type":"Bearer"}`)
		want(opaque)
		if tokens.Renew(t.Context()) {
			t.Errorf("connections with %s are replaced, although it may be valid", opaque)
		}
	}
	e.answer = status(http.StatusInternalServerError, "")
	want("opaque-2")
	if log := e.log.String(); !strings.Contains(log, "cannot renew the token for Kafka") || strings.Contains(log, "expires=") {
		t.Errorf("an unknown expiry is logged as a time: %s", log)
	}

	jwt := "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, e.now.Unix()+100)) + ".c2ln"
	e.answer = status(http.StatusOK, `{"access_token":"`+jwt+`","token_type":"Bearer"}`)
	want(jwt)
	e.answer = nil
	e.now = e.now.Add(79 * time.Second)
	want(jwt)
	e.now = e.now.Add(time.Second)
	want("token-1")
}

// TestRefusals verifies how each kind of failed response is reported, and that no error repeats a
// secret.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   error
		words  string
	}{
		"a wrong client":     {status(http.StatusUnauthorized, `{"error":"invalid_client","error_description":"not `+secret+`"}`), ErrRefused, "401 Unauthorized, invalid_client"},
		"a wrong scope":      {status(http.StatusBadRequest, `{"error":"invalid_scope"}`), ErrRefused, "400 Bad Request, invalid_scope"},
		"an odd code":        {status(http.StatusBadRequest, `{"error":"`+secret+`"}`), ErrRefused, "400 Bad Request"},
		"too many requests":  {status(http.StatusTooManyRequests, secret), ErrUnavailable, "429 Too Many Requests"},
		"broken":             {status(http.StatusBadGateway, secret), ErrUnavailable, "502 Bad Gateway"},
		"no JSON":            {status(http.StatusOK, secret+"{"), ErrUnavailable, "the response is not a token"},
		"no token":           {status(http.StatusOK, `{"token_type":"Bearer"}`), ErrUnavailable, "not a token"},
		"a token with a tab": {status(http.StatusOK, `{"access_token":"`+secret+`\t","expires_in":3}`), ErrUnavailable, "no bearer token"},
		"a redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/"+secret)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, ErrUnavailable, "307 Temporary Redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			e, tokens := newEndpoint(t)
			e.answer = c.answer
			_, err := tokens.Get(t.Context())
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "KUBERELAY_KAFKA_OAUTH_TOKEN_URL") && !strings.Contains(err.Error(), e.URL) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.words)
			}
			if strings.Contains(fmt.Sprint(err), secret) || strings.Contains(e.log.String(), secret) {
				t.Errorf("a secret is in %v, or in the log: %s", err, &e.log)
			}
		})
	}
	e, tokens := newEndpoint(t)
	e.Close()
	if _, err := tokens.Get(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without an endpoint: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tokens.Get(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without time: %v", err)
	}
}

func TestTokenFile(t *testing.T) {
	jwt := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"relay","exp":1800000100}`)) + ".c2ln"
	file := written(t, jwt+"\n")
	var log bytes.Buffer
	tokens, err := New(Options{TokenFile: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tokens.Get(t.Context()); err != nil || got != jwt || tokens.Subject() != "relay" {
		t.Errorf("got %q, %v of %q", got, err, tokens.Subject())
	}
	replace := func(content, want string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := tokens.Get(t.Context()); err != nil || got != want {
			t.Errorf("%q: got %q, %v", content, got, err)
		}
	}
	replace("later\n", "later")
	replace("two words "+secret, "later") // not a token, so the last one remains
	replace("", "later")
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log has %s", &log)
	}
	if _, err := New(Options{TokenFile: written(t, "two words "+secret)}); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE") {
		t.Errorf("a file without a token: %v", err)
	}
}
