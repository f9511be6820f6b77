// Package natsserver runs a NATS server with JetStream in this process. Use it to try Kuberelay
// without installing anything else, or as the local bus of a pod.
//
// Guarantees:
//
//   - Only this process can write. Other clients can read, with the credentials in [Access].
//   - The server limits the size of its files, the memory of the readers' consumers, and the number
//     of the readers' connections.
//   - Its files are in one directory, which only the current user can access and only one server
//     can use at a time.
//   - Acknowledged messages survive the end of the process, including kill -9.
//   - After a failed write, for example to a full disk, it restarts, and then accepts messages if it can.
//
// Limits:
//
//   - Messages that were acknowledged in the last two minutes might not survive a power loss or a
//     kernel crash. JetStream writes them at once but syncs to disk at intervals.
//   - It is a single server. If the bus must survive the loss of a machine, run a NATS
//     cluster and set KUBERELAY_NATS_URL.
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
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// maxPayload is the maximum size of a message in bytes, including headers. It is much larger than the
// object size limit of etcd with its default settings, because JSON is longer than the encoding in
// etcd. NATS advises against larger values.
const maxPayload = 8 << 20

// Limits for all clients together. By default, the server also limits a stream to 1000 consumers.
const (
	maxConnections = 1024
	maxMemory      = 64 << 20 // for streams and consumers in memory, in bytes
)

// Options configures the server.
type Options struct {
	// ListenAddr is host:port (KUBERELAY_NATS_LISTEN). Port 0 selects a free port.
	ListenAddr string
	// StoreDir is the directory for the messages (in KUBERELAY_DATA_DIR). Start creates it if
	// necessary.
	StoreDir string
	// MaxBytes is the maximum size of all messages in bytes (KUBERELAY_NATS_MAX_BYTES). A full
	// server refuses messages. The default is three quarters of the volume's space that is free or
	// holds messages at startup.
	MaxBytes int64
	// Access configures access for clients outside of this process.
	Access Access
	// Logger receives the log of the server, with notices at level debug. If nil, the log is
	// discarded.
	Logger *slog.Logger

	restartDelay time.Duration // tests shorten it
}

// Server is a running server. It implements nats.go's InProcessConnProvider.
type Server struct {
	opts   Options
	host   string
	port   int
	unlock func()
	log    *bridge
	down   chan struct{} // closed when the server has stopped

	running context.Context // ends when the server is told to stop
	stop    context.CancelFunc

	mu sync.Mutex
	ns *server.Server
}

// Start starts a server. It returns when the server has read its files, which can take a while for
// large files, and accepts connections. If ctx ends first, Start stops the server. Errors name the
// setting to change.
func Start(ctx context.Context, o Options) (*Server, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.restartDelay = cmp.Or(o.restartDelay, restartDelay)
	host, port, err := splitAddr(o.ListenAddr)
	if err != nil {
		return nil, err
	}
	unlock, err := prepareDir(o.StoreDir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts: o, host: host, port: port, unlock: unlock, down: make(chan struct{}),
		log: &bridge{log: o.Logger, fatal: make(chan string, 1), broken: make(chan struct{}, 1)},
	}
	if err := s.launch(ctx); err != nil {
		unlock()
		return nil, err
	}
	s.running, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go s.supervise()
	return s, nil
}

// launch starts a server with the configured files and address. If launch fails, no server is
// running.
func (s *Server) launch(ctx context.Context) error {
	o := s.opts
	clients, err := o.Access.authenticator(o.StoreDir, o.Logger)
	if err != nil {
		return err
	}
	tlsConfig, err := o.Access.tls(o.Logger)
	if err != nil {
		return err
	}
	ns, err := server.NewServer(&server.Options{
		ServerName:         "kuberelay",
		Host:               s.host,
		Port:               s.port,
		JetStream:          true,
		StoreDir:           o.StoreDir,
		JetStreamMaxStore:  o.MaxBytes,
		JetStreamMaxMemory: maxMemory,
		MaxConn:            maxConnections,
		MaxPayload:         maxPayload,
		TLSConfig:          tlsConfig,

		CustomClientAuthentication: clients,

		NoSigs:                 true, // main handles signals
		NoLog:                  true, // bridge replaces the server's own logger
		DisableJetStreamBanner: true,
	})
	if err == nil {
		ns.SetLoggerV2(s.log, false, false, false)
		ns.Start() // reads the files, then listens in the background
		if err = clients.isolateReaders(ns); err == nil {
			err = await(ctx, ns, s.log.fatal)
		}
		if err != nil {
			end(ns)
		}
	}
	if err != nil {
		return fmt.Errorf("start the built-in NATS server on %s with its files in %s: %w", o.ListenAddr, o.StoreDir, err)
	}
	if at, ok := ns.Addr().(*net.TCPAddr); ok {
		s.port = at.Port // a restart keeps the port
	}
	if is := ns.JetStreamConfig(); is != nil {
		s.opts.MaxBytes = is.MaxStore // a restart on a full volume keeps the limit
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ns = ns
	return nil
}

func (s *Server) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ns
}

// end stops a server. It returns when the server has written its files.
func end(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

// await blocks until the server is ready or has failed.
func await(ctx context.Context, ns *server.Server, fatal <-chan string) error {
	for !ns.ReadyForConnections(50 * time.Millisecond) {
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

// splitAddr splits host:port. It also checks that the address is available, because the server's
// error would be less clear.
func splitAddr(addr string) (host string, port int, err error) {
	host, portText, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(portText)
	}
	if err != nil {
		return "", 0, fmt.Errorf("KUBERELAY_NATS_LISTEN is %q: use host:port, for example 127.0.0.1:4222", addr)
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

// prepareDir creates the directory and locks it. The lock also shows that the directory is writable.
func prepareDir(dir string) (unlock func(), err error) {
	fail := func(err error) (func(), error) {
		return nil, fmt.Errorf("the built-in NATS server cannot use directory %s: %w; set KUBERELAY_DATA_DIR to another directory", dir, err)
	}
	if dir == "" {
		return nil, errors.New("the built-in NATS server has no directory for its files: set KUBERELAY_DATA_DIR")
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

// ClientURL returns the address for clients outside of this process.
func (s *Server) ClientURL() string { return s.current().ClientURL() }

// Addr returns the address of the server, with the actual port if the configured one is 0.
func (s *Server) Addr() string { return s.current().Addr().String() }

// InProcessConn returns a connection without a socket. If the server has all the connections that it
// can have, InProcessConn closes the newest one of the readers.
func (s *Server) InProcessConn() (net.Conn, error) {
	ns := s.current()
	if ns.NumClients() >= maxConnections {
		open, err := ns.Connz(&server.ConnzOptions{Limit: maxConnections}) // oldest first
		if err != nil {
			return nil, err
		}
		for _, c := range slices.Backward(open.Conns) {
			if c.Port != 0 { // a socket
				_ = ns.DisconnectClientByID(c.Cid) // fails if the reader has just gone
				break
			}
		}
	}
	return ns.InProcessConn()
}

// Shutdown stops the server and waits until it has written its files or ctx ends. You can call
// Shutdown more than once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	select {
	case <-s.down:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the built-in NATS server: %w", ctx.Err())
	}
}
