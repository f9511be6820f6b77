package natsserver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kuberelay/kuberelay/test/lab/logtest"
)

// TestRestartAfterAFailedWrite verifies that the server accepts messages again after a failed write,
// at the same address, with the same limit, and without the loss of a message that it acknowledged. It
// fails if nats-server changes the text by which bridge recognizes a failed write.
func TestRestartAfterAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "nats", "jetstream", "$G", "streams", "KUBERELAY", "msgs", "2.blk")
	s := start(t, Options{
		ListenAddr: "127.0.0.1:0", StoreDir: filepath.Join(dir, "nats"), restartDelay: time.Millisecond,
		Logger: slog.New(onError{slog.DiscardHandler, func() error { return os.RemoveAll(blocked) }}), // before the restart
	})
	js, url, before := forwarder(t, s), s.ClientURL(), s.current()
	maxStore := before.JetStreamConfig().MaxStore
	publish(t, js, "kuberelay.a", "acknowledged")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	// The second file of the stream, which follows the first after some megabytes, can't be written.
	if err := os.MkdirAll(filepath.Join(blocked, "not-empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	// The limit that the server derives from the free space becomes smaller.
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 6<<20)
	store := func(ctx context.Context) error {
		_, err := js.Publish(ctx, "kuberelay.b", large)
		return err
	}
	eventually(ctx, t, func(ctx context.Context) error {
		err := store(ctx)
		if err == nil && s.current() == before {
			return errors.New("the server has not started again")
		}
		return err
	})
	st, err := js.Stream(ctx, "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := st.GetLastMsgForSubject(ctx, "kuberelay.a"); err != nil || string(m.Data) != "acknowledged" {
		t.Errorf("got %v (%v)", m, err)
	}
	if s.ClientURL() != url {
		t.Errorf("clients connect to %s, want %s", s.ClientURL(), url)
	}
	if got := s.current().JetStreamConfig().MaxStore; got != maxStore {
		t.Errorf("the limit is %d bytes, want %d as before", got, maxStore)
	}
}

// onError is a handler that discards the log, and calls a function for each error.
type onError struct {
	slog.Handler
	call func() error
}

func (h onError) Enabled(context.Context, slog.Level) bool { return true }

func (h onError) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelError {
		return nil
	}
	return h.call()
}

// TestRestartDelay verifies that the pause before a restart doubles while the server fails soon after
// its start, because each restart disconnects the readers.
func TestRestartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true})
		if err != nil {
			t.Fatal(err)
		}
		var log logtest.Log
		s := &Server{
			opts: Options{restartDelay: restartDelay, Logger: slog.New(slog.NewTextHandler(&log, nil)), Access: Access{TokenFile: "missing"}},
			log:  &bridge{broken: make(chan struct{}, 1)}, down: make(chan struct{}), unlock: func() {}, ns: first,
		}
		s.running, s.stop = context.WithCancel(t.Context())
		go s.supervise()
		defer stop(t, s)
		s.log.fail()
		var after time.Duration
		for i, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			time.Sleep(delay*time.Second - time.Nanosecond) // on the synctest clock
			synctest.Wait()
			if got := strings.Count(log.String(), "cannot restart"); got != i {
				t.Errorf("after %v: %d restarts, want %d", after, got, i)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			after += delay * time.Second
		}
		if got := strings.Count(log.String(), "cannot restart"); got != 7 {
			t.Errorf("after %v: %d restarts, want 7", after, got)
		}
		if got := s.opts.nextDelay(maxRestartDelay, 6*time.Minute); got != restartDelay {
			t.Errorf("a server that ran for 6 minutes starts again after %v", got)
		}
	})
}

// eventually repeats a request until it succeeds, because a server that stops may not respond.
func eventually(ctx context.Context, t *testing.T, request func(context.Context) error) {
	t.Helper()
	for {
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := request(once)
		cancel()
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}
