package operations

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// echo responds with the path of the request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "path "+r.URL.Path) })

// TestSupport verifies that without authorization, only callers on the same machine or in the same
// pod can read the parts of a bundle, because the port is open to the network.
func TestSupport(t *testing.T) {
	if res, body := request(t, http.MethodGet, serve(t, Endpoints{Support: echo})+"/debug/support/log"); res.StatusCode != http.StatusOK || body != "path /log" {
		t.Errorf("on the loopback address: got %d %q", res.StatusCode, body)
	}
	if res, _ := request(t, http.MethodGet, serve(t, Endpoints{})+"/debug/support/log"); res.StatusCode != http.StatusNotFound {
		t.Errorf("without a source: got %d", res.StatusCode)
	}
	h := Endpoints{Support: echo, Metrics: prometheus.NewRegistry(), Log: silent()}.handler()
	for _, c := range []struct {
		what, from, to, host string
		want                 int
	}{
		{"the same machine", "127.0.0.1:5000", "127.0.0.1:8080", "localhost:8080", 200},
		{"an address of the loopback network", "127.0.0.2:5000", "127.0.0.1:8080", "127.0.0.1:8080", 200},
		{"IPv6", "[::1]:5000", "[::1]:8080", "[::1]:8080", 200},
		{"IPv4 on a listener for IPv6", "[::ffff:127.0.0.1]:5000", "[::ffff:127.0.0.1]:8080", "localhost", 200},
		{"the network", "10.0.0.7:5000", "10.0.0.8:8080", "10.0.0.8:8080", 403},
		{"the network, with a host that it made up", "10.0.0.7:5000", "10.0.0.8:8080", "localhost:8080", 403},
		{"the proxy of a service mesh", "127.0.0.6:5000", "10.0.0.8:8080", "localhost:8080", 403},
		{"a spoofed address", "10.0.0.7:5000", "127.0.0.1:8080", "localhost:8080", 403},
		{"a browser that was sent to this machine by a name", "127.0.0.1:5000", "127.0.0.1:8080", "rebound.example.com:8080", 403},
		{"a name that begins like it", "127.0.0.1:5000", "127.0.0.1:8080", "localhost.example.com", 403},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/support/log", http.NoBody)
		to, err := net.ResolveTCPAddr("tcp", c.to)
		if err != nil {
			t.Fatal(err)
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(to)))
		r.RemoteAddr, r.Host = c.from, c.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || (c.want == 403) != strings.Contains(w.Body.String(), "KUBERELAY_METRICS_AUTH") {
			t.Errorf("%s: got %d %q, want %d", c.what, w.Code, w.Body, c.want)
		}
	}
}
