package natsserver

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/loglimit"
	"github.com/kuberelay/kuberelay/test/lab/logtest"
)

// failed reports whether a line of a log counts as a failed write.
func failed(t *testing.T, log string) bool {
	t.Helper()
	b := &bridge{log: slog.New(slog.DiscardHandler), broken: make(chan struct{}, 1)}
	for line := range strings.Lines(log) {
		var is struct{ Text, Name, Err string }
		if err := json.Unmarshal([]byte(line), &is); err != nil {
			t.Fatal(err)
		}
		b.Errorf("%s", cmp.Or(is.Text, is.Name+" - "+is.Err))
	}
	return len(b.broken) > 0
}

// TestHostileNames verifies that a client cannot choose a name that makes the server restart.
func TestHostileNames(t *testing.T) {
	const text = "Filestore [KUBERELAY] Critical write error: no space"
	var log logtest.Log
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	refused(t, s, nats.UserInfo(text, text), nats.Name(text))
	got := log.String()
	if !strings.Contains(got, text) {
		t.Fatalf("the server did not log the name:\n%s", got)
	}
	if failed(t, got) {
		t.Errorf("it counts as a failed write:\n%s", got)
	}
}

// TestFailingClients verifies that clients without the token, and requests that a reader must not send, are
// not errors in the log of the forwarder, and that a client that fails again and again does not fill the
// log. An earlier version logged an error for each attempt.
func TestFailingClients(t *testing.T) {
	const attempts = 50
	for name, fail := range map[string]func(t *testing.T, s *Server){
		"authentication error": func(t *testing.T, s *Server) { refused(t, s, nats.Token("guess")) },
		"Publish Violation": func(t *testing.T, s *Server) {
			secret, err := credential.Secret(TokenFile(s.opts.StoreDir))
			if err != nil {
				t.Fatal(err)
			}
			nc := client(t, s, nats.Token(secret)).Conn()
			if err := nc.Publish("$JS.API.STREAM.DELETE.KUBERELAY", nil); err != nil {
				t.Fatal(err)
			}
			if err := nc.FlushTimeout(limit); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log logtest.Log
			limited := loglimit.New(slog.NewTextHandler(&log, nil))
			s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Logger: slog.New(limited)})
			for range attempts {
				fail(t, s)
			}
			stop(t, s)
			limited.Flush()
			text := log.String()
			if strings.Contains(text, "level=ERROR") {
				t.Errorf("it is an error of the forwarder:\n%s", text)
			}
			if !strings.Contains(text, `level=WARN msg="a client of the built-in NATS server failed" name="127.0.0.1:`) || !strings.Contains(text, name) {
				t.Errorf("the log does not say which client failed, and why:\n%s", text)
			}
			if lines := strings.Count(text, "\n"); lines >= attempts || !strings.Contains(text, "suppressed=") {
				t.Errorf("%d attempts wrote %d lines:\n%s", attempts, lines, text)
			}
		})
	}
}
