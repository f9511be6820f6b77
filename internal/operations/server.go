package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTimeout   = 5 * time.Second
	readTimeout     = 10 * time.Second
	writeTimeout    = 30 * time.Second
	idleTimeout     = 2 * time.Minute // longer than a scrape interval, so that connections are used again
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 3 * time.Second
)

// listenVariable is the variable whose value is given to Listen.
const listenVariable = "KUBERELAY_LISTEN_ADDR"

// Endpoints is what a [Server] serves.
type Endpoints struct {
	Metrics prometheus.Gatherer // /metrics
	Ready   []Check             // /readyz: whether the forwarder does its work
	Live    []Check             // /healthz: what only a restart can cure; may be empty
	Log     *slog.Logger
	// Profiles adds net/http/pprof's at /debug/pprof/. Only who is asked to measure
	// sets it: a profile takes time and memory, and a heap profile may force a
	// garbage collection.
	Profiles bool
}

// Server serves [Endpoints] over HTTP. Make one with [Listen].
type Server struct{ listener net.Listener }

// Listen takes the port; [Server.Run] answers on it. A connection made meanwhile
// waits. addr is host:port, or :port for all of the machine's addresses.
func Listen(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listenError(addr, err)
	}
	return &Server{listener: l}, nil
}

func listenError(addr string, err error) error {
	fix := "write host:port or :port"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		fix = "end the process that listens there, or choose another port"
	case errors.Is(err, syscall.EACCES):
		fix = "choose a port above 1023; those below need a privilege"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		fix = "choose an address of this machine, or write :port for all of them"
	}
	return fmt.Errorf("%s=%q: %w: %s", listenVariable, addr, err, fix)
}

// Addr is where the server listens, with the port that the system chose where 0 was
// asked for.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close gives the port back where [Server.Run] is not reached.
func (s *Server) Close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, and is called once. It then gives the port back,
// finishes the requests under way, for up to three seconds, and returns nil when all
// it started has ended; a check that does not return is not waited for any longer.
// An error means that the port can no longer be listened on.
//
// To be observed while it drains, the forwarder lets ctx end after that.
func (s *Server) Run(ctx context.Context, e Endpoints) error {
	server := &http.Server{
		Handler:           e.handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(e.Log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	e.Log.Info("metrics and health are served", "addr", s.Addr())

	select {
	case err := <-served:
		_ = server.Close() // it serves no more in any case
		return fmt.Errorf("serve metrics and health on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		e.Log.Warn("requests for metrics or health were cut off", "err", err)
		_ = server.Close() // it serves no more in any case
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics and health on %s: %w", s.Addr(), err)
	}
	return nil
}

// handler has a mux of its own: packages add profiles and more to the default one
// just by being imported.
func (e Endpoints) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.Metrics, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      metricsLog{e.Log},
	}))
	mux.Handle("GET /readyz", checks(e.Ready))
	mux.Handle("GET /healthz", checks(e.Live))
	if e.Profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // heap, goroutine and the other named ones, too
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// metricsLog is a [promhttp.Logger].
type metricsLog struct{ log *slog.Logger }

func (l metricsLog) Println(v ...any) {
	l.log.Warn("some metrics could not be served", "err", oneLine(fmt.Sprint(v...)))
}
