package client

import (
	"net"
	"strings"
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
	if _, err := c.Status(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no answer within 50ms; if it is slow, raise --timeout") {
		t.Errorf("got %v", err)
	}
}
