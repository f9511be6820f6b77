package natsserver

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// failed reports whether a line of a log counts as a failed write.
func failed(t *testing.T, log string) bool {
	t.Helper()
	b := &bridge{log: slog.New(slog.DiscardHandler), broken: make(chan struct{}, 1)}
	for line := range strings.Lines(log) {
		var is struct{ Text string }
		if err := json.Unmarshal([]byte(line), &is); err != nil {
			t.Fatal(err)
		}
		b.Errorf("%s", is.Text)
	}
	return len(b.broken) > 0
}

// TestHostileNames verifies that a client cannot choose a name that makes the server restart.
func TestHostileNames(t *testing.T) {
	const text = "Filestore [KUBERELAY] Critical write error: no space"
	var log buffer
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
