package nats

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

const secret = "s3cret-that-nobody-may-see"

func file(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// access is one way to authenticate: a server that requires it, options with valid credentials, and
// options with invalid ones.
type access struct {
	server       func(*server.Options)
	right, wrong Options
}

func ways(t *testing.T) map[string]access {
	ca, otherCA := tlstest.NewCA(t), tlstest.NewCA(t)
	serverCert, _, _ := ca.Issue("server")
	_, clientCert, clientKey := ca.Issue("client")
	_, strangerCert, strangerKey := otherCA.Issue("stranger")
	serverTLS := func(config *tls.Config) func(*server.Options) {
		config.Certificates, config.ClientCAs = []tls.Certificate{serverCert}, ca.Pool
		return func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, config, 10 }
	}
	nkey, seed := newUser(t)
	_, otherSeed := newUser(t)
	operator, user, otherCreds := operatorMode(t)
	return map[string]access{
		"user and password": {
			func(o *server.Options) { o.Username, o.Password = "relay", secret },
			Options{Connection: Connection{User: "relay", PasswordFile: file(t, secret+"\n")}},
			Options{Connection: Connection{User: "relay", PasswordFile: file(t, "wrong")}},
		},
		"token": {
			func(o *server.Options) { o.Authorization = secret },
			Options{Connection: Connection{TokenFile: file(t, secret+"\r\n")}},
			Options{Connection: Connection{TokenFile: file(t, "wrong")}},
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: nkey}} },
			Options{Connection: Connection{NkeyFile: file(t, seed)}},
			Options{Connection: Connection{NkeyFile: file(t, otherSeed)}},
		},
		"JWT of an operator": {
			operator,
			Options{Connection: Connection{CredsFile: file(t, user())}},
			Options{Connection: Connection{CredsFile: file(t, otherCreds)}},
		},
		"TLS": {
			serverTLS(&tls.Config{}),
			Options{Connection: Connection{CAFile: ca.File}},
			Options{Connection: Connection{CAFile: otherCA.File}},
		},
		"TLS of both sides": {
			serverTLS(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}),
			Options{Connection: Connection{CAFile: ca.File, CertFile: clientCert, KeyFile: clientKey}},
			Options{Connection: Connection{CAFile: ca.File, CertFile: strangerCert, KeyFile: strangerKey}},
		},
		"TLS of both sides, none given": {
			serverTLS(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}),
			Options{Connection: Connection{CAFile: ca.File, CertFile: clientCert, KeyFile: clientKey}},
			Options{Connection: Connection{CAFile: ca.File}},
		},
		"none given": {
			func(o *server.Options) { o.Username, o.Password = "relay", secret },
			Options{Connection: Connection{User: "relay", PasswordFile: file(t, secret)}},
			Options{},
		},
	}
}

func newUser(t testing.TB) (public, seed string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	return publicOf(t, pair), seedOf(t, pair)
}

func publicOf(t testing.TB, pair nkeys.KeyPair) string {
	t.Helper()
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return public
}

func seedOf(t testing.TB, pair nkeys.KeyPair) string {
	t.Helper()
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return string(seed)
}

// operatorMode configures a server that trusts an operator. creds returns credentials of a new user
// of the forwarder's account. strangers are the credentials of a user of another account.
func operatorMode(t testing.TB) (configure func(*server.Options), creds func() string, strangers string) {
	t.Helper()
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	newPair := func(create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
		pair, err := create()
		try(err)
		return pair
	}
	operator := newPair(nkeys.CreateOperator)
	operatorClaims := jwt.NewOperatorClaims(publicOf(t, operator))
	resolver := &server.MemAccResolver{}
	account := func(unlimited bool) nkeys.KeyPair {
		pair := newPair(nkeys.CreateAccount)
		claims := jwt.NewAccountClaims(publicOf(t, pair))
		if unlimited {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		encoded, err := claims.Encode(operator)
		try(err)
		try(resolver.Store(publicOf(t, pair), encoded))
		return pair
	}
	user := func(account nkeys.KeyPair) string {
		pair := newPair(nkeys.CreateUser)
		encoded, err := jwt.NewUserClaims(publicOf(t, pair)).Encode(account)
		try(err)
		creds, err := jwt.FormatUserConfig(encoded, []byte(seedOf(t, pair)))
		try(err)
		return string(creds)
	}
	system, ours := account(false), account(true)
	return func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{operatorClaims}
		o.AccountResolver = resolver
		o.SystemAccount = publicOf(t, system)
	}, func() string { return user(ours) }, user(newPair(nkeys.CreateAccount))
}

func TestCredentials(t *testing.T) {
	for name, way := range ways(t) {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t, way.server)
			var log strings.Builder
			o := way.right
			o.URLs, o.Cluster, o.Logger = []string{s.URL}, publishtest.Cluster, slog.New(slog.NewTextHandler(&locked{w: &log}, nil))
			bus := connect(t, o)
			if err := bus.Ready(); err != nil {
				t.Fatalf("not ready: %v", err)
			}
			publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
			s.Restart()
			waitReconnected(t, bus) // with the same credentials, which the client reads again

			o = way.wrong
			o.URLs, o.Cluster = []string{s.URL}, publishtest.Cluster
			err := connectError(t, o)
			if !errors.Is(err, ErrMisconfigured) {
				t.Errorf("with wrong credentials the error is %v, want ErrMisconfigured", err)
			}
			bus.Close()
			if text := log.String() + fmt.Sprint(err); strings.Contains(text, secret) {
				t.Errorf("a log or an error has the secret in it: %s", text)
			}
		})
	}
}

// TestRotatedPassword verifies that the client reads the password file at each reconnect, and finds
// a new password even if it is written only after the server has changed its password.
func TestRotatedPassword(t *testing.T) {
	s := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "relay", "old" })
	path := file(t, "old")
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, User: "relay", PasswordFile: path}})
	s.Configure(func(o *server.Options) { o.Password = "new" })
	s.Restart()
	poll.Holds(t, "refused", func() bool { return errors.Is(bus.Ready(), ErrMisconfigured) })

	if err := os.Remove(path); err != nil { // as between the steps of a careless rotation
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	poll.Holds(t, "ready", func() bool { return bus.Ready() == nil })
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
}
