package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
)

// faultyAPI is a proxy in front of the API server that authenticates as the administrator. It causes
// faults that a TCP proxy can't.
type faultyAPI struct {
	kubeconfig string
	skew       atomic.Int64 // nanoseconds by which its clock is ahead

	mu      sync.Mutex
	held    func(*http.Request) bool
	changed chan struct{} // closed when held changes
}

func newFaultyAPI(t *testing.T, cp *controlplane.ControlPlane) *faultyAPI {
	t.Helper()
	config := cp.Config()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	a := &faultyAPI{changed: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval, proxy.ErrorLog = transport, -1, log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(time.Duration(a.skew.Load())).UTC().Format(http.TimeFormat))
		r.Body = heldBody{r.Body, a, r.Request}
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.wait(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(func() { a.hold(nil) })
	a.kubeconfig = writeKubeconfig(t, server.URL)
	return a
}

// hold delays the responses to requests that match held, including responses that have begun.
// hold(nil) releases all of them.
func (a *faultyAPI) hold(held func(*http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = held
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait blocks while the response to the request is held. It also returns when the client stops
// waiting.
func (a *faultyAPI) wait(r *http.Request) {
	for {
		a.mu.Lock()
		held, changed := a.held, a.changed
		a.mu.Unlock()
		if held == nil || !held(r) {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// heldBody is a response body that can be held back.
type heldBody struct {
	io.ReadCloser
	api     *faultyAPI
	request *http.Request
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.api.wait(b.request)
	return n, err
}
