package sinks

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
)

// TestBuiltIn verifies that a reader on the same machine finds the built-in server and its token.
func TestBuiltIn(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:4222": "nats://127.0.0.1:4222",
		":4222":          "nats://127.0.0.1:4222",
		"0.0.0.0:5000":   "nats://127.0.0.1:5000",
		"[::]:4222":      "nats://[::1]:4222",
		"10.0.0.7:4222":  "nats://10.0.0.7:4222",
		"localhost:4222": "nats://localhost:4222",
	} {
		o, err := NATSReader(config.Config{Server: config.Server{Listen: listen, DataDir: "/data"}})
		if err != nil || len(o.URLs) != 1 || o.URLs[0] != want {
			t.Errorf("%s: got %q (%v), want %q", listen, o.URLs, err, want)
		}
		if o.TokenFile != "/data/nats/token" || !o.TokenOptional {
			t.Errorf("got %+v, want to read with the token of the server", o)
		}
	}
	o, err := NATSReader(config.Config{
		NATS: config.NATS{TokenFile: "/token"}, Server: config.Server{Listen: ":4222", CertFile: "/cert"},
	})
	if err != nil || o.URLs[0] != "tls://127.0.0.1:4222" || o.TokenFile != "/token" || o.TokenOptional {
		t.Errorf("got %+v (%v), want TLS and the configured token", o, err)
	}
}
