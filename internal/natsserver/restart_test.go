package natsserver

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// TestRestartAfterAFailedWrite verifies that the server accepts messages again after a failed write,
// at the same address and without the loss of a message that it acknowledged.
func TestRestartAfterAFailedWrite(t *testing.T) {
	for name, c := range map[string]struct {
		fill, free func(t *testing.T, s *Server, js jetstream.JetStream, dir string)
	}{
		"the server reports it": {
			fill: func(_ *testing.T, s *Server, _ jetstream.JetStream, _ string) {
				s.log.Errorf("Filestore [%s] Critical write error: %v", "KUBERELAY", "no space")
			},
			free: func(*testing.T, *Server, jetstream.JetStream, string) {},
		},
		"the volume is full": {
			fill: func(t *testing.T, _ *Server, js jetstream.JetStream, dir string) {
				if err := exec.Command("mount", "-o", "remount,size=200k", dir).Run(); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if _, err := js.Publish(ctx, "kuberelay.a", make([]byte, 300<<10)); err == nil {
					t.Fatal("the message was stored")
				}
			},
			free: func(t *testing.T, _ *Server, _ jetstream.JetStream, dir string) {
				if err := exec.Command("mount", "-o", "remount,size=64m", dir).Run(); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if name == "the volume is full" {
				if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", dir).Run(); err != nil {
					t.Skipf("cannot mount a volume: %v", err)
				}
				t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
			}
			s := start(t, Options{
				ListenAddr: "127.0.0.1:0", StoreDir: filepath.Join(dir, "nats"),
				Logger: slog.New(slog.DiscardHandler), restartDelay: time.Millisecond,
			})
			js, url, before := forwarder(t, s), s.ClientURL(), s.current()
			if _, err := js.Publish(t.Context(), "kuberelay.a", []byte("acknowledged")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			c.fill(t, s, js, dir)
			eventually(ctx, t, func(ctx context.Context) error { // it has started again
				_, err := js.AccountInfo(ctx)
				if err == nil && s.current() == before {
					return errors.New("the server has not stopped")
				}
				return err
			})
			c.free(t, s, js, dir)
			large := make([]byte, 1<<20)
			store := func(ctx context.Context) error {
				_, err := js.Publish(ctx, "kuberelay.b", large)
				return err
			}
			eventually(ctx, t, store)
			if err := store(ctx); err != nil {
				t.Errorf("the limit has changed: %v", err)
			}
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
		})
	}
}

// TestRestartDelay verifies that the pause before a restart doubles while the server fails soon after
// its start, because each restart disconnects the readers.
func TestRestartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true})
		if err != nil {
			t.Fatal(err)
		}
		var log buffer
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
			time.Sleep(delay*time.Second - time.Nanosecond)
			synctest.Wait()
			if got := strings.Count(log.String(), "cannot start again"); got != i {
				t.Errorf("after %v: %d restarts, want %d", after, got, i)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			after += delay * time.Second
		}
		if got := strings.Count(log.String(), "cannot start again"); got != 7 {
			t.Errorf("after %v: %d restarts, want 7", after, got)
		}
		if got := s.opts.nextDelay(maxRestartDelay, 6*time.Minute); got != restartDelay {
			t.Errorf("a server that ran for 6 minutes starts again after %v", got)
		}
	})
}

// eventually repeats a request until it succeeds. A request to a server that stops may get no answer.
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
