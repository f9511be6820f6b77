package operations

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTimeout   = 5 * time.Second
	readTimeout     = 10 * time.Second
	writeTimeout    = 30 * time.Second
	idleTimeout     = 2 * time.Minute // longer than a scrape interval, so that connections are reused
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 3 * time.Second
)

// Endpoints configures the endpoints of a [Server].
type Endpoints struct {
	Metrics prometheus.Gatherer // /metrics
	Ready   []Check             // /readyz: whether the forwarder works
	Live    []Check             // /healthz: failures that only a restart can fix; may be empty
	// Status and Trace, if set, return the documents of /api/v1/status and /api/v1/trace for a query.
	// The server encodes them as JSON. An error means that the query is invalid, and says why. Both
	// functions are called concurrently and must not block.
	Status, Trace func(url.Values) (any, error)
	Page          Page // the status page, if set
	Log           *slog.Logger
	// Profiles adds the handlers of net/http/pprof at /debug/pprof/. Enable it only for
	// measurements: a profile takes time and memory, and a heap profile can force a garbage
	// collection.
	Profiles bool
	// Support, if set, serves the paths below /debug/support/. It receives the paths without that
	// prefix. Without Access, the server admits only callers on the same machine or in the same pod.
	Support http.Handler
	// TLS, if not nil, makes the server use TLS.
	TLS *tls.Config
	// Access, if not nil, protects all endpoints. /readyz and /healthz still return their status to
	// everyone, because the kubelet needs it, but hide the text of the checks.
	Access *Authorizer
}

// Server serves [Endpoints] over HTTP. Create one with [Listen].
type Server struct{ listener net.Listener }

// Listen binds the port. Connections wait until [Server.Run] serves them. addr is host:port, or
// :port for all addresses of the machine.
func Listen(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listenError(addr, err)
	}
	return &Server{listener: l}, nil
}

func listenError(addr string, err error) error {
	fix := "use host:port or :port"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		fix = "stop the process that uses the port, or choose another port"
	case errors.Is(err, syscall.EACCES):
		fix = "choose a port above 1023; lower ports need a privilege"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		fix = "choose an address of this machine, or use :port for all addresses"
	}
	return fmt.Errorf("KUBERELAY_LISTEN_ADDR=%q: %w: %s", addr, err, fix)
}

// Addr returns the address of the server, with the actual port if the configured one is 0.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close releases the port. Use it if [Server.Run] is not called.
func (s *Server) Close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves the endpoints until ctx ends. Call it once. When ctx ends, Run releases the port and
// waits up to three seconds for requests in progress. It returns nil when everything it started has
// ended, except for checks that do not return. It returns an error if it can no longer listen on the
// port.
//
// To keep the metrics available while the forwarder drains, end ctx after the drain.
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
	listener := s.listener
	if e.TLS != nil {
		listener = tls.NewListener(listener, e.TLS)
	}
	go func() { served <- server.Serve(listener) }()
	e.Log.Info("serving metrics and health", "addr", s.Addr())

	select {
	case err := <-served:
		_ = server.Close() // closes the server even if it returns an error
		return fmt.Errorf("serve metrics and health on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		e.Log.Warn("metrics or health requests were cut off", "err", err)
		_ = server.Close() // closes the server even if it returns an error
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics and health on %s: %w", s.Addr(), err)
	}
	return nil
}

// handler returns the handler of all endpoints. The endpoints have their own mux, because imported
// packages, such as net/http/pprof, can add handlers to the default mux.
func (e Endpoints) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e.Access.protect(promhttp.HandlerFor(e.Metrics, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      metricsLog{e.Log},
	})))
	mux.Handle("GET /readyz", e.checks(e.Ready))
	mux.Handle("GET /healthz", e.checks(e.Live))
	// These paths need the right to get /metrics, because the ClusterRole system:discovery lets every
	// authenticated user get all paths below /api/.
	if e.Status != nil {
		mux.Handle("GET "+StatusPath, e.Access.protectAs("/metrics", answer(e.Status)))
	}
	if e.Trace != nil {
		mux.Handle("GET "+TracePath, e.Access.protectAs("/metrics", answer(e.Trace)))
	}
	if e.Page != nil {
		e.addPage(mux)
	}
	if e.Profiles {
		for path, handle := range map[string]http.HandlerFunc{
			"":        pprof.Index, // also serves the named profiles, such as heap and goroutine
			"profile": pprof.Profile, "trace": pprof.Trace,
		} {
			mux.Handle("GET /debug/pprof/"+path, e.Access.protect(handle))
		}
	}
	if e.Support != nil {
		mux.Handle("GET "+SupportPath, e.protectSupport(http.StripPrefix(strings.TrimSuffix(SupportPath, "/"), e.Support)))
	}
	return mux
}

// The paths of the status document, of the page's stream, and of the trace of one object.
const (
	StatusPath = "/api/v1/status"
	StreamPath = StatusPath + "/stream"
	TracePath  = "/api/v1/trace"
)

// answer returns a handler that serves the document for a query.
func answer(document func(url.Values) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := document(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body, err := json.Marshal(d)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write(body) // fails only if the client disconnected
	}
}

// metricsLog is a [promhttp.Logger] that writes to a [slog.Logger].
type metricsLog struct{ log *slog.Logger }

func (l metricsLog) Println(v ...any) {
	l.log.Warn("cannot serve some metrics", "err", oneLine(fmt.Sprint(v...)))
}
