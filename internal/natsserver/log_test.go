package natsserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestFailedWriteIsRecognized verifies that the text of a failed write is that of this version of
// nats-server. The next file of the stream can't be written, because a directory has its name.
func TestFailedWriteIsRecognized(t *testing.T) {
	dir, log := t.TempDir(), buffer{}
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: dir, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	js, large := forwarder(t, s), strings.Repeat("x", 6<<20)
	publish(t, js, "kuberelay.a", large)
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "KUBERELAY", "msgs", "1.blk"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got the files %v (%v)", files, err)
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(files[0]), "2.blk", "not-empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for got := ""; !failed(t, got); got = log.String() {
		if ctx.Err() != nil {
			t.Fatalf("no line counts as a failed write:\n%s", got)
		}
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if _, err := js.Publish(short, "kuberelay.a", []byte(large)); err == nil {
			t.Fatal("the message was stored")
		}
		cancel()
	}
}

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

// TestHostileNames verifies that a client cannot restart the server with the name that it gives itself.
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
