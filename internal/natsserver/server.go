// Package natsserver runs a NATS server with JetStream inside this process, so
// that Kuberelay can be tried, or used as the local bus of a pod, without anything
// else being installed.
//
// What it guarantees:
//
//   - It listens on the loopback interface unless told otherwise. It has no
//     authentication: who can reach it can read and write everything.
//   - Its files are under one directory that only this user can enter, and only
//     one server at a time uses them.
//   - What was acknowledged survives the end of the process, kill -9 included.
//
// What it does not:
//
//   - By default what was acknowledged in the last two minutes may not survive a
//     power loss or a crash of the kernel: JetStream writes at once but syncs to disk
//     at intervals. [Options.SyncAlways] syncs before each acknowledgement, at about
//     a tenth of the speed.
//   - It is one server. Who needs the bus to outlive a machine runs a NATS cluster
//     and names it in KUBERELAY_NATS_URL.
package natsserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// DefaultListenAddr is where a NATS client looks first.
const DefaultListenAddr = "127.0.0.1:4222"

// defaultMaxPayload is larger than any object that etcd takes with its usual
// settings, JSON being longer than what etcd stores. NATS advises against more.
const defaultMaxPayload = 8 << 20

// Options says where the server listens and keeps its files.
type Options struct {
	// ListenAddr is host:port (KUBERELAY_NATS_LISTEN), [DefaultListenAddr] if
	// empty. Port 0 is any free one.
	ListenAddr string
	// StoreDir holds the messages (a folder in KUBERELAY_DATA_DIR). It is made if
	// it is not there.
	StoreDir string
	// MaxPayload is the largest message in bytes, headers included; 8 MiB if 0.
	MaxPayload int32
	// SyncAlways syncs each message to disk before it is acknowledged.
	SyncAlways bool
	// Logger takes what the server has to say, its notices at level debug. None if
	// nil.
	Logger *slog.Logger
}

// Server is a running server. It implements nats.go's InProcessConnProvider.
type Server struct {
	ns       *server.Server
	unlock   func()
	shutdown sync.Once
	down     chan struct{} // closed when the server has ended
}

// Start starts a server and returns when it accepts connections and has read its
// files, which takes a while if they are large; ctx ends the waiting and with it
// the server. Errors say which setting to change.
func Start(ctx context.Context, o Options) (*Server, error) {
	o.ListenAddr = cmp.Or(o.ListenAddr, DefaultListenAddr)
	o.MaxPayload = cmp.Or(o.MaxPayload, defaultMaxPayload)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	host, port, err := splitAddr(o.ListenAddr)
	if err != nil {
		return nil, err
	}
	unlock, err := prepareDir(o.StoreDir)
	if err != nil {
		return nil, err
	}
	log := &bridge{log: o.Logger, fatal: make(chan string, 1)}
	ns, err := server.NewServer(&server.Options{
		ServerName:             "kuberelay",
		Host:                   host,
		Port:                   port,
		JetStream:              true,
		StoreDir:               o.StoreDir,
		SyncAlways:             o.SyncAlways,
		MaxPayload:             o.MaxPayload,
		NoSigs:                 true, // signals are main's business
		NoLog:                  true, // no logger of its own
		DisableJetStreamBanner: true,
	})
	if err != nil {
		unlock()
		return nil, fmt.Errorf("start the built-in NATS server on %s with its files in %s: %w", o.ListenAddr, o.StoreDir, err)
	}
	ns.SetLoggerV2(log, false, false, false)
	s := &Server{ns: ns, unlock: unlock, down: make(chan struct{})}
	ns.Start() // reads the files, then listens in the background
	if err := s.await(ctx, log.fatal); err != nil {
		s.end()
		<-s.down
		return nil, fmt.Errorf("start the built-in NATS server on %s with its files in %s: %w", o.ListenAddr, o.StoreDir, err)
	}
	if ip := net.ParseIP(host); ip == nil && host != "localhost" || ip != nil && !ip.IsLoopback() {
		o.Logger.Warn("the built-in NATS server can be reached from the network and asks for no password", "address", o.ListenAddr)
	}
	return s, nil
}

// await returns when the server is ready, or has said that it will not be.
func (s *Server) await(ctx context.Context, fatal <-chan string) error {
	for !s.ns.ReadyForConnections(50 * time.Millisecond) {
		select {
		case text := <-fatal:
			return errors.New(text)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
	return nil
}

// splitAddr also finds out whether the address can be listened on, since the
// server itself would not say it as clearly.
func splitAddr(addr string) (host string, port int, err error) {
	host, portText, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(portText)
	}
	if err != nil {
		return "", 0, fmt.Errorf("KUBERELAY_NATS_LISTEN is %q: want host:port, like %s", addr, DefaultListenAddr)
	}
	if port == 0 {
		return host, server.RANDOM_PORT, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", 0, fmt.Errorf("the built-in NATS server cannot listen on %s: %w; "+
			"set KUBERELAY_NATS_LISTEN to another address, or KUBERELAY_NATS_URL if a NATS server is running there", addr, err)
	}
	return host, port, l.Close()
}

// prepareDir makes the directory, takes its lock and finds out whether files can
// be made in it.
func prepareDir(dir string) (unlock func(), err error) {
	fail := func(err error) (func(), error) {
		return nil, fmt.Errorf("the built-in NATS server cannot keep its files in %s: %w; set KUBERELAY_DATA_DIR to another folder", dir, err)
	}
	if dir == "" {
		return nil, errors.New("the built-in NATS server has no folder for its files: set KUBERELAY_DATA_DIR")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fail(err)
	}
	if err := lockFile(lock); err != nil {
		lock.Close()
		return fail(err)
	}
	return func() { lock.Close() }, nil
}

// ClientURL is the address for clients outside this process.
func (s *Server) ClientURL() string { return s.ns.ClientURL() }

// InProcessConn is a connection that needs no socket.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// Shutdown stops the server and waits until it has written its files, or ctx ends.
// It may be called again.
func (s *Server) Shutdown(ctx context.Context) error {
	s.end()
	select {
	case <-s.down:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the built-in NATS server: %w", ctx.Err())
	}
}

func (s *Server) end() {
	s.shutdown.Do(func() {
		go func() {
			s.ns.Shutdown()
			s.ns.WaitForShutdown()
			s.unlock()
			close(s.down)
		}()
	})
}
