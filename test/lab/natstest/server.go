// Package natstest runs real NATS servers for tests. A server in the test process can be stopped and
// started again on the same port and files. A server in its own process can also be killed and frozen.
package natstest

import (
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// startLimit limits the time until a server accepts connections.
const startLimit = 5 * time.Minute

// Server is a server in this process.
type Server struct {
	// URL is the client URL. It stays the same across restarts.
	URL string

	t    testing.TB
	opts server.Options
	ns   *server.Server
}

// Start starts a server with JetStream on its own port and store, and stops it at the end of the test.
// The functions in configure change the server's options.
func Start(t testing.TB, configure ...func(*server.Options)) *Server {
	t.Helper()
	port := FreePort(t)
	s := &Server{
		t:   t,
		URL: "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		opts: server.Options{
			Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			AuthTimeout: startLimit.Seconds(), // a client can be slow on a busy machine
		},
	}
	for _, f := range configure {
		f(&s.opts)
	}
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// Restart stops the server, if it is running, and starts it on the same port and files.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	opts := s.opts // the server modifies its options
	ns, err := server.NewServer(&opts)
	if err != nil {
		s.t.Fatal(err)
	}
	ns.Start()
	if !ns.ReadyForConnections(startLimit) {
		s.t.Fatalf("the NATS server on %s is not ready", s.URL)
	}
	s.ns = ns
}

// Configure changes the options for the next [Server.Restart] or [Server.Reload].
func (s *Server) Configure(configure func(*server.Options)) { configure(&s.opts) }

// Reload applies the options from Configure to the running server. The server disconnects users
// that may no longer connect.
func (s *Server) Reload() {
	s.t.Helper()
	opts := s.opts
	if err := s.ns.ReloadOptions(&opts); err != nil {
		s.t.Fatal(err)
	}
}

// Stop stops the server and waits until it has ended.
func (s *Server) Stop() {
	if s.ns == nil {
		return
	}
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
	s.ns = nil
}

// StoreDir returns the directory where the server keeps its files.
func (s *Server) StoreDir() string { return s.opts.StoreDir }

// InProcess returns the running server itself.
func (s *Server) InProcess() *server.Server { return s.ns }

// Addr returns the address that the server listens on, as host:port.
func (s *Server) Addr() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Host
}

// FreePort returns a port that no server listens on. The port is held until t ends, so no outgoing
// connection takes it while its server is down.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := childprocess.HoldPort(childprocess.ReuseAddr) // Go's listeners set SO_REUSEADDR
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return port.Number
}
