package nats

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// rotated is a bus with a log whose credential files a test replaces.
type rotated struct {
	*Bus
	t   *testing.T
	s   *natstest.Server
	log *locked
	b   *strings.Builder
}

func newRotated(t *testing.T, s *natstest.Server, o Options) *rotated {
	t.Helper()
	b := &strings.Builder{}
	r := &rotated{t: t, s: s, log: &locked{w: b}, b: b}
	o.URLs, o.Cluster, o.Logger = []string{s.URL}, publishtest.Cluster, slog.New(slog.NewTextHandler(r.log, nil))
	r.Bus = connect(t, o)
	waitReady(t, r.Bus)
	return r
}

func (r *rotated) write(path, content string) {
	r.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rotated) read(path string) string {
	r.t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(content)
}

func (r *rotated) logged(part string) bool {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return strings.Contains(r.b.String(), part)
}

// user returns the user of the newest connection. The server may not have noticed yet that earlier
// connections are closed.
func (r *rotated) user() string {
	r.t.Helper()
	all, err := r.s.InProcess().Connz(&server.ConnzOptions{Username: true})
	if err != nil {
		r.t.Fatal(err)
	}
	var last server.ConnInfo
	for _, c := range all.Conns {
		if c.Name == "kuberelay "+publishtest.Cluster && c.Cid > last.Cid {
			last = *c
		}
	}
	return last.AuthorizedUser
}

// wantReconnects verifies the number of reconnects, and that the connection works. It doesn't use the
// client's number, which includes connections that failed before the login.
func (r *rotated) wantReconnects(want int) {
	r.t.Helper()
	got, _, err := r.conn.State()
	if got != want {
		r.t.Errorf("connected anew %d times, want %d", got, want)
	}
	if err != nil {
		r.t.Errorf("not ready: %v", err)
	}
}

func TestChangedFiles(t *testing.T) {
	t.Run("creds", func(t *testing.T) {
		operator, user, stranger := operatorMode(t)
		path := file(t, user())
		r := newRotated(t, natstest.Start(t, operator), Options{Connection: Connection{CredsFile: path}})
		first := r.user()
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(0) // nothing has changed

		r.write(path, user())
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(1)
		if got := r.user(); got == first || got == "" {
			t.Errorf("the server still has a connection of user %s", got)
		}

		// A rejected file does not end a working connection.
		second := r.user()
		for _, content := range []string{stranger, "nothing of use"} {
			r.write(path, content)
			r.conn.CheckFiles(t.Context())
			r.wantReconnects(1)
			if !r.logged("keeping the current connection") {
				t.Error("the log does not say that it keeps the current connection")
			}
		}
		if got := r.user(); got != second {
			t.Errorf("the server has a connection of user %s, want %s", got, second)
		}
		r.write(path, user())
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(2)
		if r.logged("BEGIN") || r.logged("nothing of use") {
			t.Errorf("the log has the content of the file: %s", r.b)
		}
	})

	t.Run("a server that learns of it later", func(t *testing.T) {
		s := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "relay", "old" })
		path := file(t, "old")
		r := newRotated(t, s, Options{Connection: Connection{User: "relay", PasswordFile: path}})
		r.write(path, "new")
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(0)
		s.Configure(func(o *server.Options) { o.Password = "new" })
		s.Reload() // the reload ends the bus's connection
		waitReconnected(t, r.Bus)
		publishOK(t, r.Bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	})

	t.Run("certificate and authority", func(t *testing.T) {
		first, second := tlstest.NewCA(t), tlstest.NewCA(t)
		clients := first.Pool.Clone()
		clients.AppendCertsFromPEM([]byte((&rotated{t: t}).read(second.File)))
		serverTLS := func(ca *tlstest.CA) func(*server.Options) {
			certificate, _, _ := ca.Issue("server")
			return func(o *server.Options) {
				o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 10
				o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
			}
		}
		s := natstest.Start(t, serverTLS(first))
		_, cert, key := first.Issue("one")
		_, nextCert, nextKey := second.Issue("two")
		r := newRotated(t, s, Options{Connection: Connection{CAFile: first.File, CertFile: cert, KeyFile: key}})

		r.write(cert, r.read(nextCert)) // the matching key is not written yet
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(0)
		r.write(key, r.read(nextKey))
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(1)

		r.write(first.File, r.read(second.File)) // the server doesn't have its new certificate yet
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(1)
		s.Configure(serverTLS(second))
		s.Reload()
		r.conn.CheckFiles(t.Context())
		r.wantReconnects(2)
		publishOK(t, r.Bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	})

	t.Run("another nkey", func(t *testing.T) {
		public, seed := newUser(t)
		other, otherSeed := newUser(t)
		s := natstest.Start(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}, {Nkey: other}} })
		path := file(t, seed)
		r := newRotated(t, s, Options{Connection: Connection{NkeyFile: path}})
		r.write(path, otherSeed)
		s.Restart()
		waitReconnected(t, r.Bus) // with the key that the bus already has
		if !r.logged("restart the forwarder to use it") || r.logged(otherSeed) {
			t.Errorf("logged: %s", r.b)
		}
	})
}

// TestChangedFilesUnderLoad verifies that, during a reconnect, no publish has an unknown outcome,
// none is rejected for long, and no event is stored twice. This holds for every bus that shares the
// connection.
func TestChangedFilesUnderLoad(t *testing.T) {
	operator, user, _ := operatorMode(t)
	path := file(t, user())
	o := Options{Connection: Connection{CredsFile: path, Shared: &Shared{}}, MaxInFlight: 64}
	r := newRotated(t, natstest.Start(t, operator), o)
	o.URLs, o.Cluster = []string{r.s.URL}, "another"
	other := connect(t, o)
	const objects, changes = 8, 3
	buses := []*Bus{r.Bus, other}
	stop := make(chan struct{})
	var published, refused atomic.Int64
	finished := make(chan struct{}, len(buses)*objects)
	for n := range cap(finished) {
		go func() {
			defer func() { finished <- struct{}{} }()
			object := publishtest.Object{Name: "web-" + string(rune('a'+n))}
			for position := uint64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				next := object
				next.Version++
				at, err := publishNow(t, buses[n%len(buses)], next.Message(t, position))
				switch {
				case err == nil:
					object, position = next, at
					published.Add(1)
				case errors.Is(err, publish.ErrNotSent):
					refused.Add(1)
				default:
					t.Errorf("version %d: %v", next.Version, err)
					return
				}
			}
		}()
	}
	for range changes {
		before := published.Load()
		poll.Holds(t, "published", func() bool { return published.Load() > before+500 })
		r.write(path, user())
		r.conn.CheckFiles(t.Context())
	}
	close(stop)
	for range cap(finished) {
		<-finished
	}
	r.wantReconnects(changes)
	t.Logf("published %d, refused meanwhile %d", published.Load(), refused.Load())
	for _, b := range buses {
		if got := load(t, b); len(got) != objects {
			t.Errorf("%d objects of cluster %s on the bus, want %d", len(got), b.opts.Cluster, objects)
		}
	}
}
