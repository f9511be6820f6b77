package broker

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

const clientSecret = "Hunter3Hunter3"

// issuer is an OpenID Connect provider with one client. It issues JWTs, and brokers read the key of
// the JWTs from it.
type issuer struct {
	*httptest.Server

	key    *rsa.PrivateKey
	life   time.Duration
	issued atomic.Int64
}

const audience = "kafka"

func newIssuer(t *testing.T) *issuer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, life: time.Hour}
	answer := func(w http.ResponseWriter, code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jwks", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != "relay" || secret != clientSecret {
			answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
			return
		}
		i.issued.Add(1)
		answer(w, http.StatusOK, map[string]any{"access_token": i.token(t, "relay", audience, i.life), "token_type": "Bearer", "expires_in": int(i.life.Seconds())})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// token returns a signed JWT for a user.
func (i *issuer) token(t *testing.T, user, audience string, life time.Duration) string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	now := time.Now()
	signed := part(map[string]string{"alg": "RS256", "kid": "1", "typ": "JWT"}) + "." + part(map[string]any{
		"iss": i.URL, "sub": user, "aud": audience, "scope": "kafka", "iat": now.Unix(), "exp": now.Add(life).Unix(), "jti": rand.Text(),
	})
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(nil, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Error(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// withTokens starts a broker that accepts the tokens of an issuer. The broker closes a connection
// when its token expires.
func withTokens(t *testing.T, i *issuer) (s *secured) {
	s = &secured{authority: tlstest.NewCA(t), server: newPair(t)}
	s.server.write(t, s.authority, "broker")
	s.caFile = writeFile(t, "ca.crt", "")
	replaceFile(t, s.caFile, s.authority.File)
	const prefix = "listener.name.sasl_ssl.oauthbearer.sasl."
	s.Broker = kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLSSL}, Users: map[string]string{"unused": "unused"},
		TLS:       kafkabroker.TLS{CertFile: s.server.cert, KeyFile: s.server.key},
		Authorize: true, SuperUsers: []string{"relay"},
		Properties: map[string]string{
			"sasl.enabled.mechanisms":                "OAUTHBEARER",
			prefix + "jaas.config":                   "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
			prefix + "server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
			// Without this setting, Kafka 4.1.0 does not verify the signature, the audience and the issuer.
			"sasl.oauthbearer.jwt.validator.class":             "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
			prefix + "oauthbearer.jwks.endpoint.url":           i.URL + "/jwks",
			prefix + "oauthbearer.expected.audience":           audience,
			prefix + "oauthbearer.expected.issuer":             i.URL,
			"listener.name.sasl_ssl.connections.max.reauth.ms": "3600000",
		},
		SystemProperties: map[string]string{"org.apache.kafka.sasl.oauthbearer.allowed.urls": i.URL + "/jwks"},
	})
	s.topic = kafkabrokertest.Topic(t, s, "bearer", 1, nil)
	return s
}

// bearer returns a client that authenticates with tokens.
func (s *secured) bearer(t *testing.T, tokens OAuth) *Client {
	return newClient(t, s.AddrOf(kafkabroker.SASLSSL), func(o *Options) {
		o.TLS, o.CAFile, o.SASLMechanism, o.OAuth = true, s.caFile, login.OAuthBearer, tokens
	})
}

func TestBearerTokens_Slow(t *testing.T) {
	i := newIssuer(t)
	s := withTokens(t, i)
	fromEndpoint := func(secret string) OAuth {
		return OAuth{TokenURL: i.URL + "/token", ClientID: "relay", SecretFile: writeFile(t, "secret", secret+"\n"), Scopes: []string{"kafka"}}
	}
	fromFile := func(token string) OAuth { return OAuth{TokenFile: writeFile(t, "token", token+"\n")} }

	t.Run("an endpoint", func(t *testing.T) {
		before := i.issued.Load()
		c := s.bearer(t, fromEndpoint(clientSecret))
		for range 3 {
			if err := s.produce(t, c); err != nil {
				t.Fatal(err)
			}
			c.transport.renew(time.Now(), 0) // forces new connections
		}
		if n := i.issued.Load() - before; n != 1 {
			t.Errorf("%d tokens were issued", n)
		}
	})
	t.Run("a token that ends", func(t *testing.T) {
		// The broker closes a connection whose token has expired. The client renews the token
		// earlier.
		i.life = 10 * time.Second
		defer func() { i.life = time.Hour }()
		c := s.bearer(t, fromEndpoint(clientSecret))
		if err := s.produce(t, c); err != nil {
			t.Fatal(err)
		}
		before, first := i.issued.Load(), c.connections()
		poll.Holds(t, "another token", func() bool {
			c.transport.renewToken(t.Context())
			return i.issued.Load() > before
		})
		if err := s.produce(t, c); err != nil {
			t.Error(err)
		}
		c.awaitClosed(t, first)
	})
	t.Run("a file", func(t *testing.T) {
		tokens := fromFile(i.token(t, "relay", audience, time.Hour))
		c := s.bearer(t, tokens)
		if err := s.produce(t, c); err != nil {
			t.Fatal(err)
		}
		first := c.connections()
		replaceFile(t, tokens.TokenFile, writeFile(t, "next", i.token(t, "relay", audience, time.Hour)))
		c.transport.checkFiles()
		if err := s.produce(t, c); err != nil {
			t.Error(err)
		}
		c.awaitClosed(t, first)
	})
	for name, token := range map[string]string{
		"an expired token":          i.token(t, "relay", audience, -time.Hour),
		"a token for another":       i.token(t, "relay", "other", time.Hour),
		"a token of another issuer": newIssuer(t).token(t, "relay", audience, time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			err := s.produce(t, s.bearer(t, fromFile(token)))
			wantMisconfigured(t, err, failure.Denied, `rejected the token of "relay"`, "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE")
			if strings.Contains(fmt.Sprint(err), token) {
				t.Errorf("the token is in: %v", err)
			}
		})
	}
	t.Run("a wrong secret", func(t *testing.T) {
		err := s.produce(t, s.bearer(t, fromEndpoint("Wrong0Wrong0")))
		wantMisconfigured(t, err, failure.Denied, "401 Unauthorized, invalid_client", "KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE")
		if strings.Contains(fmt.Sprint(err), "Wrong0") {
			t.Errorf("the secret is in: %v", err)
		}
	})
	t.Run("no endpoint", func(t *testing.T) {
		o := fromEndpoint(clientSecret)
		o.TokenURL = "http://127.0.0.1:1/token"
		wantError(t, s.produce(t, s.bearer(t, o)), failure.Retry, "KUBERELAY_KAFKA_OAUTH_TOKEN_URL", "connection refused")
	})
	t.Run("no permission", func(t *testing.T) {
		err := s.produce(t, s.bearer(t, fromFile(i.token(t, "mallory", audience, time.Hour))))
		wantError(t, err, failure.Denied, "--allow-principal User:mallory")
	})
	t.Run("no OAUTHBEARER there", func(t *testing.T) {
		c := s.bearer(t, fromEndpoint(clientSecret))
		other := newClient(t, s.AddrOf(kafkabroker.SASLSSL), func(o *Options) {
			o.TLS, o.CAFile, o.SASLMechanism, o.User, o.PasswordFile = true, s.caFile, login.ScramSHA256, "u", writeFile(t, "password", "p")
		})
		wantMisconfigured(t, s.produce(t, other), failure.Denied, "does not support the SASL mechanism")
		if err := s.produce(t, c); err != nil {
			t.Error(err)
		}
	})
}
