package operations

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// blank is a page that responds with the arguments of the call.
type blank struct{}

func (blank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "file "+r.URL.Path)
}

func (blank) Stream(w http.ResponseWriter, _ *http.Request, names bool) {
	_, _ = fmt.Fprintf(w, "names %v", names)
}

// TestPage verifies that the page is served only at / and below /page/. Without authorization, only
// callers on the same machine or in the same pod see names. TestAuthorization covers authorization.
func TestPage(t *testing.T) {
	url := serve(t, Endpoints{Page: blank{}})
	for path, want := range map[string]string{"/": "file /", "/page/page.js": "file /page/page.js", StreamPath: "names true"} {
		if res, body := request(t, http.MethodGet, url+path); res.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: got %d %q, want %q", path, res.StatusCode, body, want)
		}
	}
	for _, path := range []string{"/other", "/index.html", StreamPath + "/other"} {
		if res, body := request(t, http.MethodGet, url+path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: got %d %q", path, res.StatusCode, body)
		}
	}
	without := serve(t, Endpoints{})
	for _, path := range []string{"/", "/page/page.js", StreamPath} {
		if res, _ := request(t, http.MethodGet, without+path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s without the page: got %d", path, res.StatusCode)
		}
	}
	h := Endpoints{Page: blank{}, Metrics: prometheus.NewRegistry(), Log: silent()}.handler()
	for host, want := range map[string]string{"127.0.0.1:8080": "names true", "10.0.0.8:8080": "names false", "rebound.example.com:8080": "names false"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, StreamPath, http.NoBody)
		own := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&own)))
		r.RemoteAddr, r.Host = "127.0.0.1:5000", host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Body.String() != want {
			t.Errorf("host %s: got %d %q, want %q", host, w.Code, w.Body, want)
		}
	}
}
