package client

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
)

func TestStatusAddress(t *testing.T) {
	for _, c := range []struct {
		at     Address
		listen config.Operations
		want   string
	}{
		{Address{}, config.Operations{ListenAddr: ":8080"}, "http://localhost:8080/api/v1/status"},
		{Address{}, config.Operations{ListenAddr: "0.0.0.0:1"}, "http://localhost:1/api/v1/status"},
		{Address{}, config.Operations{ListenAddr: "[::]:1"}, "http://localhost:1/api/v1/status"},
		{Address{}, config.Operations{ListenAddr: "10.0.0.7:1"}, "http://10.0.0.7:1/api/v1/status"},
		{Address{}, config.Operations{ListenAddr: ":1", MetricsAuth: true}, "https://localhost:1/api/v1/status"},
		{Address{}, config.Operations{ListenAddr: ":1", CertFile: "x"}, "https://localhost:1/api/v1/status"},
		{Address{Forwarder: "a:1"}, config.Operations{ListenAddr: ":2", MetricsAuth: true}, "http://a:1/api/v1/status"},
		{Address{Forwarder: "a:1", CAFile: "x"}, config.Operations{}, "https://a:1/api/v1/status"},
		{Address{Forwarder: "a:1", TokenFile: "x"}, config.Operations{}, "https://a:1/api/v1/status"},
		{Address{Forwarder: "https://a:1/"}, config.Operations{}, "https://a:1/api/v1/status"},
	} {
		got, err := c.at.url(c.listen)
		if err != nil || got.String() != c.want {
			t.Errorf("%+v of %+v: got %s, %v, want %s", c.at, c.listen, got, err, c.want)
		}
	}
}

// TestCredentialsInAddress verifies that the error for an address with credentials doesn't have them. It
// used to have them if the address was not a valid URL.
func TestCredentialsInAddress(t *testing.T) {
	for _, address := range []string{"https://user:pa55@a:1", "https://user:pa55%zz@a:1", "user:pa55@a:1", "ftp://user:pa55@a:1"} {
		if got, err := (Address{Forwarder: address}).url(config.Operations{}); err == nil || strings.Contains(err.Error(), "pa55") || !strings.Contains(err.Error(), "--token-file") {
			t.Errorf("%s: got %v, %v", address, got, err)
		}
	}
}

// TestTimeUp verifies that no request takes longer than --timeout, and that the error says that the
// server may be slow.
func TestTimeUp(t *testing.T) {
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frozen.Close() })
	c, err := Address{Forwarder: frozen.Addr().String(), Timeout: 50 * time.Millisecond}.Connect(config.Operations{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no response within 50ms; if the server is slow, raise --timeout") {
		t.Errorf("got %v", err)
	}
}

// TestATokenIsNotRedirected verifies that the client doesn't send its token to the target of a
// redirect. net/http alone would send the token to another port or scheme of the same host.
func TestATokenIsNotRedirected(t *testing.T) {
	var got atomic.Pointer[string]
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization")
		got.Store(&sent)
	}))
	t.Cleanup(other.Close)
	forwarder := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(forwarder.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Address{Forwarder: forwarder.URL, TokenFile: token, Timeout: time.Minute}.Connect(config.Operations{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "302 Found") {
		t.Errorf("got %v, want the status of the redirect", err)
	}
	if sent := got.Load(); sent != nil {
		t.Errorf("the other address got the token %q", *sent)
	}
}
