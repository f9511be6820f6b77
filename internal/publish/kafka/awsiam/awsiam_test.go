package awsiam

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

const (
	secret  = "Hunter2Hunter2"
	account = "/v1/credentials"
)

// isolate gives the SDK an environment without AWS settings, and disables the instance metadata service.
func isolate(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
}

func written(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	replace(t, file, content)
	return file
}

func replace(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// source is a server that issues credentials. It acts as the EKS Pod Identity agent and as the AWS security
// token service (STS). Both expect the token in tokenFile.
type source struct {
	*httptest.Server

	tokenFile string
	life      time.Duration
	answer    func(http.ResponseWriter) // if set, writes the response instead of credentials
	issued    int
	log       bytes.Buffer
	now       time.Time // the clock of the mechanism
}

func newSource(t *testing.T) *source {
	isolate(t)
	s := &source{tokenFile: written(t, "token-1"), life: time.Hour, now: time.Now()}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, err := os.ReadFile(s.tokenFile)
		if err != nil {
			t.Error(err)
		}
		podIdentity := r.URL.Path == account
		got := r.PostFormValue("WebIdentityToken")
		if podIdentity {
			got = r.Header.Get("Authorization")
		}
		switch {
		case got != string(want):
			t.Errorf("asked with the token %q, want %q", got, want)
		case s.answer != nil:
			s.answer(w)
			return
		}
		s.issued++
		end := time.Now().Add(s.life).UTC().Format(time.RFC3339)
		if podIdentity {
			fmt.Fprintf(w, `{"AccessKeyId":"AKID%d","SecretAccessKey":"%s","Token":"session-%d","Expiration":"%s"}`, s.issued, secret, s.issued, end)
			return
		}
		if r.PostFormValue("Action") != "AssumeRoleWithWebIdentity" || r.PostFormValue("RoleArn") != "arn:aws:iam::1:role/relay" {
			t.Errorf("asked for %v", r.PostForm)
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKID%d</AccessKeyId><SecretAccessKey>%s</SecretAccessKey>`+
			`<SessionToken>session-%d</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, s.issued, secret, s.issued, end)
	}))
	t.Cleanup(s.Close)
	return s
}

// asPodIdentity sets the variables that EKS Pod Identity sets.
func (s *source) asPodIdentity(t *testing.T) {
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", s.URL+account)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", s.tokenFile)
}

// asWebIdentity sets the variables that IRSA sets, and the STS endpoint.
func (s *source) asWebIdentity(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_STS", s.URL)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/relay")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", s.tokenFile)
}

func (s *source) mechanism(t *testing.T) *Mechanism {
	t.Helper()
	m, err := New(t.Context(), Options{Region: "eu-central-1", Logger: slog.New(slog.NewTextHandler(&s.log, nil)), now: func() time.Time { return s.now }})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const host = "b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com"

// start returns the SASL payload that the mechanism sends to a broker.
func start(t *testing.T, m *Mechanism) (map[string]string, error) {
	t.Helper()
	session, payload, err := m.Start(sasl.WithMetadata(t.Context(), &sasl.Metadata{Host: host, Port: 9098}))
	if err != nil {
		return nil, err
	}
	var values map[string]string
	if err := json.Unmarshal(payload, &values); err != nil {
		t.Fatalf("%v: %s", err, payload)
	}
	if done, _, err := session.Next(t.Context(), nil); !done || err != nil {
		t.Errorf("after the response of the broker: done %t, %v", done, err)
	}
	return values, nil
}

// wantKey checks that a new payload names the n-th issued credentials.
func wantKey(t *testing.T, m *Mechanism, n int) {
	t.Helper()
	values, err := start(t, m)
	if want := fmt.Sprintf("AKID%d/", n); err != nil || !strings.HasPrefix(values["x-amz-credential"], want) || values["x-amz-security-token"] != fmt.Sprintf("session-%d", n) {
		t.Errorf("got %v, %v, want the credentials %s", values, err, want)
	}
}

// sign computes the signature of a presigned request as AWS documents Signature Version 4, without the SDK's code.
func sign(values map[string]string, key string) string {
	query := url.Values{"Action": {values["action"]}}
	for _, name := range []string{"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Security-Token"} {
		if value := values[strings.ToLower(name)]; value != "" {
			query.Set(name, value)
		}
	}
	empty := sha256.Sum256(nil)
	request := strings.Join([]string{"GET", "/", strings.ReplaceAll(query.Encode(), "+", "%20"), "host:" + values["host"] + "\n", "host", hex.EncodeToString(empty[:])}, "\n")
	_, scope, _ := strings.Cut(values["x-amz-credential"], "/")
	hashed := sha256.Sum256([]byte(request))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", values["x-amz-date"], scope, hex.EncodeToString(hashed[:])}, "\n")
	mac := []byte("AWS4" + key)
	for _, part := range append(strings.Split(scope, "/"), text) {
		h := hmac.New(sha256.New, mac)
		h.Write([]byte(part))
		mac = h.Sum(nil)
	}
	return hex.EncodeToString(mac)
}

// TestSignature verifies that the payload is a presigned request to connect to the given broker.
func TestSignature(t *testing.T) {
	s := newSource(t)
	s.asPodIdentity(t)
	s.now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	values, err := start(t, s.mechanism(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"version": "2020_10_22", "host": host, "action": "kafka-cluster:Connect", "x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-date": "20260304T050607Z",
		"x-amz-credential": "AKID1/20260304/eu-central-1/kafka-cluster/aws4_request", "x-amz-security-token": "session-1", "x-amz-signedheaders": "host", "x-amz-expires": "300",
		"x-amz-signature": sign(values, secret),
	} {
		if values[name] != want {
			t.Errorf("%s: got %q, want %q", name, values[name], want)
		}
	}
	if strings.Contains(fmt.Sprint(values), secret) {
		t.Errorf("the secret key is in %v", values)
	}
}

// TestRenewal verifies that the mechanism fetches credentials once and renews them before they expire. If the
// renewal fails, the mechanism uses the old credentials until they expire.
func TestRenewal(t *testing.T) {
	for name, as := range map[string]func(*source, *testing.T){"web identity": (*source).asWebIdentity, "pod identity": (*source).asPodIdentity} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t)
			as(s, t)
			m := s.mechanism(t)
			if m.Renew(t.Context()) || s.issued != 0 {
				t.Error("credentials that nobody uses were fetched")
			}
			wantKey(t, m, 1)
			wantKey(t, m, 1)
			if m.Renew(t.Context()) {
				t.Error("renewed too early")
			}

			s.life = window - time.Second // renewal is due at once
			m = s.mechanism(t)
			wantKey(t, m, 2)
			replace(t, s.tokenFile, "token-2")
			if !m.Renew(t.Context()) {
				t.Error("not renewed")
			}
			s.answer = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError); fmt.Fprint(w, secret) }
			if m.Renew(t.Context()) {
				t.Error("renewed by a failure")
			}
			wantKey(t, m, 3)
			if log := s.log.String(); !strings.Contains(log, "cannot renew the AWS credentials for Kafka") || strings.Contains(log, secret) || strings.Contains(log, "session-") {
				t.Errorf("the log has %s", log)
			}
			s.now = s.now.Add(window)
			if _, err := start(t, m); !errors.Is(err, ErrUnavailable) {
				t.Errorf("after the end of the credentials: %v", err)
			}
			s.answer, s.life = nil, time.Hour
			wantKey(t, m, 4)
			if !m.Renew(t.Context()) || m.Renew(t.Context()) {
				t.Error("connections with the former credentials are not reported, or twice")
			}
		})
	}
}

func TestSharedFile(t *testing.T) {
	isolate(t)
	of := func(n int) string {
		return fmt.Sprintf("[relay]\naws_access_key_id = AKID%d\naws_secret_access_key = %s\naws_session_token = session-%d\nregion = eu-west-1\n", n, secret, n)
	}
	file := written(t, of(1))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_PROFILE", "relay")
	var log bytes.Buffer
	m, err := New(t.Context(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if m.Region() != "eu-west-1" {
		t.Errorf("the region is %q", m.Region())
	}
	wantKey(t, m, 1)
	replace(t, file, of(2))
	if !m.Renew(t.Context()) {
		t.Error("a change of the file is not reported")
	}
	wantKey(t, m, 2)
	replace(t, file, "[relay\n"+secret)
	wantKey(t, m, 2)
	if !strings.Contains(log.String(), "cannot reload the AWS configuration") || strings.Contains(log.String(), secret) {
		t.Errorf("the log has %s", &log)
	}
}

func TestRegion(t *testing.T) {
	for _, c := range []struct{ variable, broker, environment, want string }{
		{"eu-west-1", host + ":9098", "us-east-1", "eu-west-1"},
		{"", host + ":9098", "us-east-1", "eu-central-1"},
		{"", "boot-abc.c1.kafka-serverless.us-west-2.amazonaws.com:9098", "", "us-west-2"},
		{"", "b-1.demo.abc.c2.kafka.cn-north-1.amazonaws.com.cn", "", "cn-north-1"},
		{"", "kafka:9098", "us-east-1", "us-east-1"},
		{"", "kafka.eu-central-1.amazonaws.com.example.com:9098", "", ""},
	} {
		isolate(t)
		t.Setenv("AWS_REGION", c.environment)
		m, err := New(t.Context(), Options{Region: c.variable, Brokers: []string{"other:9098", c.broker}})
		switch {
		case c.want == "":
			if err == nil || !strings.Contains(err.Error(), "no AWS region") || !strings.Contains(err.Error(), "KUBERELAY_KAFKA_AWS_REGION") {
				t.Errorf("%+v: got %v", c, err)
			}
		case err != nil || m.Region() != c.want:
			t.Errorf("%+v: got %v, %v", c, m, err)
		}
	}
}

// TestRefusals verifies that the error says why the mechanism has no credentials, and that neither the error nor
// the log contains a secret.
func TestRefusals(t *testing.T) {
	xml := func(status int, code string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>not %s</Message></Error></ErrorResponse>", code, secret)
		}
	}
	plain := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if strings.HasPrefix(body, "{") {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	web, pod := (*source).asWebIdentity, (*source).asPodIdentity
	for name, c := range map[string]struct {
		as     func(*source, *testing.T)
		answer func(http.ResponseWriter)
		want   error
		words  string
	}{
		"nothing":                   {func(*source, *testing.T) {}, nil, ErrUnavailable, "AWS_WEB_IDENTITY_TOKEN_FILE"},
		"a role that trusts others": {web, xml(http.StatusForbidden, "AccessDenied"), ErrRefused, "STS AssumeRoleWithWebIdentity: 403 Forbidden, AccessDenied"},
		"throttled":                 {web, xml(http.StatusBadRequest, "Throttling"), ErrUnavailable, "400 Bad Request, Throttling"},
		"an odd code":               {web, xml(http.StatusForbidden, secret), ErrRefused, "403 Forbidden"},
		"no XML":                    {web, plain(http.StatusOK, secret+"<"), ErrUnavailable, "STS AssumeRoleWithWebIdentity"},
		"a broken service":          {web, plain(http.StatusBadGateway, secret), ErrUnavailable, "502 Bad Gateway"},
		"a broken agent":            {pod, plain(http.StatusBadGateway, secret), ErrUnavailable, "502"},
		"an agent that refuses":     {pod, plain(http.StatusBadRequest, `{"code":"AccessDenied","message":"not `+secret+`"}`), ErrRefused, "AccessDenied"},
		"no JSON":                   {pod, plain(http.StatusOK, secret), ErrUnavailable, "no AWS credentials"},
		"no file with a token": {func(s *source, t *testing.T) {
			web(s, t)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/none")
		}, nil, ErrUnavailable, "AWS_WEB_IDENTITY_TOKEN_FILE: open /none"},
		"nobody there": {func(s *source, t *testing.T) {
			web(s, t)
			t.Setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1/"+secret)
		}, nil, ErrUnavailable, "connection refused"},
		"a process that prints something else": {func(_ *source, t *testing.T) {
			t.Setenv("AWS_CONFIG_FILE", written(t, "[default]\ncredential_process = echo "+secret+"\n"))
		}, nil, ErrUnavailable, "no AWS credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t)
			s.answer = c.answer
			c.as(s, t)
			_, err := start(t, s.mechanism(t))
			if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.words) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.words)
			}
			if strings.Contains(fmt.Sprint(err), secret) || strings.Contains(s.log.String(), secret) {
				t.Errorf("a secret is in %v, or in the log: %s", err, &s.log)
			}
		})
	}

	isolate(t)
	t.Setenv("AWS_PROFILE", "other")
	if _, err := New(t.Context(), Options{Region: "eu-central-1"}); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("without the profile: %v", err)
	}
	s := newSource(t)
	answers := make(chan struct{})
	s.answer = func(http.ResponseWriter) { <-answers } // otherwise, the SDK may return credentials although ctx has ended
	s.asWebIdentity(t)
	m := s.mechanism(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer close(answers)
	if _, _, err := m.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host})); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without time: %v", err)
	}
}
