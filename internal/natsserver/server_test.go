package natsserver

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/logtest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// limit bounds every wait. Only a failing test reaches it.
const limit = time.Minute

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func stream(t *testing.T, s *Server) jetstream.Stream {
	t.Helper()
	js := inProcess(t, s)
	st, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("x")); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestStart verifies that the server listens on the loopback interface, and that a restart keeps its
// files.
func TestStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	for _, want := range []uint64{1, 2} {
		s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: dir})
		if !strings.HasPrefix(s.ClientURL(), "nats://127.0.0.1:") {
			t.Errorf("clients connect to %s", s.ClientURL())
		}
		st := stream(t, s)
		info, err := st.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs != want {
			t.Errorf("the stream holds %d messages, want %d", info.State.Msgs, want)
		}
		stop(t, s)
		stop(t, s) // a second call does nothing
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v (%v), want 0700", info.Mode(), err)
	}
}

func TestMaxPayload(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{Anonymous: true}})
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got, want := nc.MaxPayload(), int64(8<<20); got != want {
		t.Errorf("max payload is %d, want %d", got, want)
	}
}

// TestCannotStart verifies that the error names the obstacle and the setting to change.
func TestCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	used := t.TempDir()
	start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: used})
	spoiled := t.TempDir()
	if err := os.WriteFile(filepath.Join(spoiled, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		o    Options
		says []string
	}{
		{"port taken", Options{ListenAddr: taken.Addr().String(), StoreDir: t.TempDir()}, []string{taken.Addr().String(), "KUBERELAY_NATS_LISTEN"}},
		{"no port", Options{ListenAddr: "localhost", StoreDir: t.TempDir()}, []string{`"localhost"`, "KUBERELAY_NATS_LISTEN"}},
		{"port is a word", Options{ListenAddr: "localhost:nats", StoreDir: t.TempDir()}, []string{`"localhost:nats"`, "KUBERELAY_NATS_LISTEN"}},
		{"no directory", Options{ListenAddr: "127.0.0.1:0"}, []string{"KUBERELAY_DATA_DIR"}},
		{"directory is a file", Options{ListenAddr: "127.0.0.1:0", StoreDir: file}, []string{file, "KUBERELAY_DATA_DIR"}},
		{"directory cannot be made", Options{ListenAddr: "127.0.0.1:0", StoreDir: filepath.Join(file, "dir")}, []string{file, "KUBERELAY_DATA_DIR"}},
		{"directory in use", Options{ListenAddr: "127.0.0.1:0", StoreDir: used}, []string{used, "another process is using it", "KUBERELAY_DATA_DIR"}},
		{"directory spoiled", Options{ListenAddr: "127.0.0.1:0", StoreDir: spoiled}, []string{spoiled}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Start(t.Context(), test.o)
			if err == nil {
				stop(t, s)
				t.Fatal("it started")
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q: %v", want, err)
				}
			}
		})
	}
}

// TestFailedStart verifies that a failed start releases the port and the directory.
func TestFailedStart(t *testing.T) {
	addr, dir := net.JoinHostPort("127.0.0.1", strconv.Itoa(natstest.FreePort(t))), t.TempDir()
	spoiled := filepath.Join(dir, "jetstream")
	if err := os.WriteFile(spoiled, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Start(t.Context(), Options{ListenAddr: addr, StoreDir: dir}); err == nil {
		stop(t, s)
		t.Fatal("it started")
	}
	if err := os.Remove(spoiled); err != nil {
		t.Fatal(err)
	}
	start(t, Options{ListenAddr: addr, StoreDir: dir})
}

// TestLog verifies that the logger receives the server's messages at the chosen levels.
func TestLog(t *testing.T) {
	var log logtest.Log
	s := start(t, Options{ListenAddr: "0.0.0.0:0", StoreDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	stop(t, s)
	text := log.String()
	if want := "level=DEBUG msg=\"built-in NATS server\" text=\"Server is ready\""; !strings.Contains(text, want) {
		t.Errorf("the log does not say %s:\n%s", want, text)
	}
	if strings.Contains(text, "level=INFO") {
		t.Errorf("the log has notices of the server at level info:\n%s", text)
	}
}
