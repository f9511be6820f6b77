package operations

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // adds its handlers to the default mux, which our server must not use
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kuberelay/kuberelay/test/lab/logtest"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func well() error { return nil }

func failing(text string) func() error { return func() error { return errors.New(text) } }

// serve serves e on a loopback port until the test ends, and returns its URL.
func serve(t *testing.T, e Endpoints) string {
	t.Helper()
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if e.Metrics == nil {
		e.Metrics = prometheus.NewRegistry()
	}
	if e.Log == nil {
		e.Log = silent()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, e) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return "http://" + s.Addr()
}

func request(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	return requestAs(t, "", method, url)
}

// requestAs sends a request with a bearer token. It sends none if token is "".
func requestAs(t *testing.T, token, method, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// scrape reads the metrics over HTTP, like Prometheus.
func scrape(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	res, body := request(t, http.MethodGet, serve(t, Endpoints{Metrics: g})+"/metrics")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("/metrics answers %s: %s", res.Status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("/metrics cannot be parsed: %v\n%s", err, body)
	}
	return families
}

// series returns the samples of a metric, keyed by their labels in the form name=value,name=value.
func series(families map[string]*dto.MetricFamily, name string) map[string]*dto.Metric {
	got := map[string]*dto.Metric{}
	for _, m := range families[name].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		got[strings.Join(labels, ",")] = m
	}
	return got
}

func TestChecks(t *testing.T) {
	tests := []struct {
		name       string
		checks     []Check
		wantStatus int
		want       string
	}{
		{"none", nil, 200, "ok\n"},
		{"all well", []Check{{Name: "informers", Check: well}, {Name: "bus", Check: well}}, 200, "informers: ok\nbus: ok\n"},
		{
			"one fails", []Check{{Name: "informers", Check: failing("not synced: pods")}, {Name: "bus", Check: well}},
			503, "informers: not synced: pods\n",
		},
		{
			"all fail", []Check{{Name: "informers", Check: failing("not synced: pods")}, {Name: "bus", Check: failing("not connected to nats://nats:4222: i/o timeout")}},
			503, "informers: not synced: pods\nbus: not connected to nats://nats:4222: i/o timeout\n",
		},
		{
			"an error of several lines stays on one",
			[]Check{{Name: "bus", Check: func() error {
				return errors.Join(errors.New("no stream"), fmt.Errorf("%s", " no server\r\n\nat all\n"))
			}}},
			503, "bus: no stream; no server; at all\n",
		},
	}
	for _, tt := range tests {
		for _, path := range []string{"/readyz", "/healthz"} {
			t.Run(tt.name+path, func(t *testing.T) {
				e := Endpoints{Ready: tt.checks, Live: []Check{{Name: "of the other", Check: failing("must not be asked")}}}
				if path == "/healthz" {
					e.Ready, e.Live = e.Live, e.Ready
				}
				url := serve(t, e) + path
				res, body := request(t, http.MethodGet, url)
				if res.StatusCode != tt.wantStatus || body != tt.want {
					t.Errorf("got %d %q, want %d %q", res.StatusCode, body, tt.wantStatus, tt.want)
				}
				if got, want := res.Header.Get("Content-Type"), "text/plain; charset=utf-8"; got != want {
					t.Errorf("content type is %q, want %q", got, want)
				}
				res, body = request(t, http.MethodHead, url)
				if res.StatusCode != tt.wantStatus || body != "" {
					t.Errorf("HEAD got %d %q, want %d and no body", res.StatusCode, body, tt.wantStatus)
				}
			})
		}
	}
}

func TestAChecksAnswerIsNotKept(t *testing.T) {
	answers := make(chan error, 2)
	url := serve(t, Endpoints{Ready: []Check{{Name: "bus", Check: func() error { return <-answers }}}}) + "/readyz"
	answers <- errors.New("not connected")
	if res, body := request(t, http.MethodGet, url); res.StatusCode != 503 {
		t.Errorf("got %d %q, want 503 while the check fails", res.StatusCode, body)
	}
	answers <- nil
	if res, body := request(t, http.MethodGet, url); res.StatusCode != 200 {
		t.Errorf("got %d %q, want 200 as soon as the check succeeds", res.StatusCode, body)
	}
}

func TestMetricsAreServed(t *testing.T) {
	r := prometheus.NewRegistry()
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "events_total", Help: "Events."}, []string{"resource"})
	r.MustRegister(events)
	events.WithLabelValues("pods").Add(3)
	got := series(scrape(t, r), "events_total")
	if len(got) != 1 || got["resource=pods"].GetCounter().GetValue() != 3 {
		t.Errorf("got %v, want 3 events of pods", got)
	}
}

func TestStatusIsServed(t *testing.T) {
	n := 0
	url := serve(t, Endpoints{Status: document(func() any { n++; return map[string]int{"n": n} })}) + StatusPath
	for _, want := range []string{`{"n":1}`, `{"n":2}`} {
		if res, body := request(t, http.MethodGet, url); res.StatusCode != 200 || body != want || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %d %q of type %s, want %q", res.StatusCode, body, res.Header.Get("Content-Type"), want)
		}
	}
	if res, body := request(t, http.MethodPost, url); res.StatusCode != 405 {
		t.Errorf("POST got %d %q, want 405", res.StatusCode, body)
	}
	url = serve(t, Endpoints{Status: document(func() any { return func() {} })}) + StatusPath
	if res, body := request(t, http.MethodGet, url); res.StatusCode != 500 {
		t.Errorf("a document that can't be encoded as JSON got %d %q, want 500", res.StatusCode, body)
	}
}

func TestTraceIsServed(t *testing.T) {
	url := serve(t, Endpoints{Trace: func(query url.Values) (any, error) {
		if query.Get("name") == "" {
			return nil, errors.New("set name")
		}
		return query, nil
	}}) + TracePath
	if res, body := request(t, http.MethodGet, url+"?name=a%2Fb"); res.StatusCode != 200 || body != `{"name":["a/b"]}` || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %q of type %s", res.StatusCode, body, res.Header.Get("Content-Type"))
	}
	if res, body := request(t, http.MethodGet, url); res.StatusCode != 400 || body != "set name\n" {
		t.Errorf("without a name, got %d %q", res.StatusCode, body)
	}
	if res, body := request(t, http.MethodPost, url); res.StatusCode != 405 {
		t.Errorf("POST got %d %q, want 405", res.StatusCode, body)
	}
}

// broken is a collector whose metric is always invalid.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(to chan<- *prometheus.Desc) { to <- b.desc }

func (b broken) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.NewInvalidMetric(b.desc, errors.New("the bus does not tell"))
}

func TestAFailingCollectorKeepsNothingElseBack(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(broken{prometheus.NewDesc("broken", "Broken.", nil, nil)})
	good := prometheus.NewGauge(prometheus.GaugeOpts{Name: "good", Help: "Good."})
	good.Set(7)
	r.MustRegister(good)
	var log logtest.Log
	url := serve(t, Endpoints{Metrics: r, Log: slog.New(slog.NewTextHandler(&log, nil))})
	res, body := request(t, http.MethodGet, url+"/metrics")
	if res.StatusCode != 200 || !strings.Contains(body, "\ngood 7\n") {
		t.Errorf("got %d %q, want 200 with the good metric", res.StatusCode, body)
	}
	if got, want := log.String(), "the bus does not tell"; !strings.Contains(got, want) {
		t.Errorf("the log is %q, want %q in it", got, want)
	}
}

func TestOnlyWhatIsMeantIsServed(t *testing.T) {
	url := serve(t, Endpoints{})
	tests := []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/debug/pprof/", 404},
		{http.MethodGet, "/", 404},
		{http.MethodGet, "/metrics/more", 404},
		{http.MethodPost, "/metrics", 405},
		{http.MethodPost, "/readyz", 405},
		{http.MethodDelete, "/healthz", 405},
	}
	for _, tt := range tests {
		if res, body := request(t, tt.method, url+tt.path); res.StatusCode != tt.want {
			t.Errorf("%s %s got %d %q, want %d", tt.method, tt.path, res.StatusCode, body, tt.want)
		}
	}
}

// TestProfiles verifies that the server serves profiles, including a heap profile that forces a
// garbage collection. It does not serve the command line, although the index page lists it.
func TestProfiles(t *testing.T) {
	url := serve(t, Endpoints{Profiles: true})
	tests := []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/debug/pprof/", 200},
		{http.MethodGet, "/debug/pprof/goroutine?debug=1", 200},
		{http.MethodGet, "/debug/pprof/heap?gc=1", 200},
		{http.MethodGet, "/debug/pprof/cmdline", 404},
		{http.MethodPost, "/debug/pprof/", 405},
	}
	for _, tt := range tests {
		if res, body := request(t, tt.method, url+tt.path); res.StatusCode != tt.want {
			t.Errorf("%s %s got %d %q, want %d", tt.method, tt.path, res.StatusCode, body, tt.want)
		}
	}
}

func TestListenErrorsSayTheFix(t *testing.T) {
	first, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	tests := []struct {
		name, addr string
		is         error // nil for any
		fix        string
	}{
		{"taken", first.Addr(), syscall.EADDRINUSE, "stop the process that uses the port, or choose another port"},
		{"not of this machine", "192.0.2.1:0", syscall.EADDRNOTAVAIL, "choose an address of this machine, or use :port for all addresses"},
		{"no port", "8080", nil, "use host:port or :port"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Listen(tt.addr)
			if err == nil {
				s.Close()
				t.Fatalf("Listen(%q) succeeds", tt.addr)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v in it", err, tt.is)
			}
			for _, want := range []string{"KUBERELAY_LISTEN_ADDR", fmt.Sprintf("%q", tt.addr), tt.fix} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestAPrivilegedPortIsExplained(t *testing.T) {
	// The test can't cause this error itself, because root may use every port.
	err := listenError(":80", &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EACCES})
	if want := "choose a port above 1023"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %q, want %q in it", err, want)
	}
}

func TestRunGivesThePortBack(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, Endpoints{Metrics: prometheus.NewRegistry(), Log: silent()}) }()
	request(t, http.MethodGet, "http://"+s.Addr()+"/healthz") // leaves an idle connection open
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v, want nil when its context has ended", err)
	}
	again, err := Listen(s.Addr())
	if err != nil {
		t.Fatalf("the port is not free after Run: %v", err)
	}
	again.Close()
}

func TestCloseGivesThePortBack(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	again, err := Listen(s.Addr())
	if err != nil {
		t.Fatalf("the port is not free after Close: %v", err)
	}
	again.Close()
}

func TestRunFailsWhereThePortIsLost(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	err = s.Run(t.Context(), Endpoints{Metrics: prometheus.NewRegistry(), Log: silent()})
	if !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("Run: %v, want an error that names %s", err, s.Addr())
	}
}

// pipes is an in-memory listener, which works in a synctest bubble.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
	linger      chan struct{} // if not nil, Accept returns after Close only when linger is closed
}

func newPipes() *pipes { return &pipes{connections: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		if p.linger != nil {
			<-p.linger
		}
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.connections <- theirs
	return ours
}

// ask sends a request and returns a channel for the status of the response. The status is 0 if the
// connection was cut off.
func (p *pipes) ask(path string) <-chan int {
	status := make(chan int, 1)
	c := p.dial()
	go func() {
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			status <- 0
			return
		}
		res.Body.Close()
		status <- res.StatusCode
	}()
	return status
}

func TestARequestUnderWayIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, proceed := newPipes(), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- (&Server{l}).Run(ctx, Endpoints{
				Metrics: prometheus.NewRegistry(), Log: silent(),
				Ready: []Check{{Name: "slow", Check: func() error { <-proceed; return nil }}},
			})
		}()
		status := l.ask("/readyz")
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("Run has returned although a request is under way")
		case <-l.closed:
		default:
			t.Error("the port was not given back at once")
		}
		close(proceed)
		if got := <-status; got != 200 {
			t.Errorf("the request under way got %d, want 200", got)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestRunWaitsForWhatItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		l.linger = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&Server{l}).Run(ctx, Endpoints{Metrics: prometheus.NewRegistry(), Log: silent()}) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run has returned although its goroutine still accepts connections")
			ended <- nil
		default:
		}
		close(l.linger)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestAStuckRequestIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stuck := newPipes(), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var log logtest.Log
		ended := make(chan error, 1)
		go func() {
			ended <- (&Server{l}).Run(ctx, Endpoints{
				Metrics: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&log, nil)),
				Live: []Check{{Name: "stuck", Check: func() error { <-stuck; return nil }}},
			})
		}()
		status := l.ask("/healthz")
		synctest.Wait()
		began := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if got := time.Since(began); got < shutdownTimeout || got > shutdownTimeout+time.Second {
			t.Errorf("Run returned after %s, want about %s", got, shutdownTimeout)
		}
		if got := <-status; got != 0 {
			t.Errorf("the stuck request got %d, want it cut off", got)
		}
		if got, want := log.String(), "cut off"; !strings.Contains(got, want) {
			t.Errorf("the log is %q, want a request %s in it", got, want)
		}
		close(stuck)
	})
}

func TestASlowHeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&Server{l}).Run(ctx, Endpoints{Metrics: prometheus.NewRegistry(), Log: silent()}) }()
		c := l.dial()
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost:")
		began := time.Now()
		c.SetReadDeadline(began.Add(time.Hour))
		_, _ = io.Copy(io.Discard, c)
		if got := time.Since(began); got < headerTimeout || got > headerTimeout+time.Second {
			t.Errorf("an unfinished header was cut off after %s, want %s", got, headerTimeout)
		}
		c.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// document returns the function of an endpoint that ignores the query.
func document(of func() any) func(url.Values) (any, error) {
	return func(url.Values) (any, error) { return of(), nil }
}
