package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"forwarder": main})
}

// TestScript runs the scripts in testdata/script, which use the command line like a user.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
	})
}

// exits CODE PROGRAM ARGS... runs a program that must exit with the code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func TestSignals(t *testing.T) {
	codes := make(chan int, 1)
	ctx := untilSignal(func(code int) { codes <- code })
	kill := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	kill()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the first signal did not end the context")
	}
	select {
	case code := <-codes:
		t.Fatalf("the first signal exited with %d", code)
	default:
	}
	kill()
	select {
	case code := <-codes:
		if code != exitFailure {
			t.Errorf("exit code %d, want %d", code, exitFailure)
		}
	case <-time.After(time.Minute):
		t.Fatal("the second signal did not exit")
	}
}

func TestExitCode(t *testing.T) {
	t.Setenv("KUBERELAY_RESOURCES", "pods")
	for _, tc := range []struct {
		name string
		err  error
		want int
	}{
		{"done", nil, 0},
		{"failed", errors.New("no"), exitFailure},
		{"usage", &config.Error{Err: errors.New("no")}, exitUsage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := newRootCommand()
			root.RunE = func(cmd *cobra.Command, _ []string) error {
				return configured(cmd, config.Forwarding, func(context.Context, config.Config, *slog.Logger) error { return tc.err })
			}
			var stderr bytes.Buffer
			if got := execute(t.Context(), root, []string{}, io.Discard, &stderr); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
			if said := stderr.String(); (tc.want == 0) != (said == "") {
				t.Errorf("on standard error: %q", said)
			}
		})
	}
}

// TestErrorHostile verifies that an error doesn't control the terminal. Its text can come from an
// aggregated API server or from the bus.
func TestErrorHostile(t *testing.T) {
	root := newRootCommand()
	root.RunE = func(*cobra.Command, []string) error { return errors.New("\x1b[2J\né") }
	var stderr bytes.Buffer
	execute(t.Context(), root, []string{}, io.Discard, &stderr)
	if got, want := stderr.String(), `forwarder: \u001b[2J`+"\n  é\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLogger(t *testing.T) {
	for _, tc := range []struct{ level, format, want string }{
		{"warn", "", `"level":"WARN","msg":"w"`},
		{"warn", config.LogJSON, `"level":"WARN","msg":"w"`},
		{"warn", config.LogText, `level=WARN msg=w`},
		{"error", "", ``},
	} {
		t.Run(tc.level+tc.format, func(t *testing.T) {
			var b bytes.Buffer
			log, err := newLogger(config.Operations{LogLevel: tc.level, LogFormat: tc.format}, &b)
			if err != nil {
				t.Fatal(err)
			}
			log.Info("i")
			log.Warn("w")
			if got := b.String(); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") || strings.Contains(got, "INFO") {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
}

// TestInterrupted verifies that a command that a signal interrupts doesn't exit with 0. It used to, so a
// script took an interrupted 'forwarder check' for a check without a failure.
func TestInterrupted(t *testing.T) {
	t.Setenv("KUBERELAY_RESOURCES", "pods")
	t.Setenv("KUBERELAY_NATS_URL", "nats://127.0.0.1:1")
	t.Setenv("KUBERELAY_LISTEN_ADDR", "127.0.0.1:0")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	t.Setenv("KUBECONFIG", kubeconfig)
	if err := os.WriteFile(kubeconfig, []byte(`{"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for line, want := range map[string]int{
		"check --pre": exitUsage, "trace pod/web": exitUsage, "verify": exitUsage,
		"get pods": exitFailure, "forget --cluster=old": exitFailure, "resources": exitFailure, "schema pods": exitFailure,
		"tail": 0, "run": 0, // they end only with a signal
	} {
		var stderr bytes.Buffer
		if got := run(ended, strings.Fields(line), io.Discard, &stderr); got != want || got != 0 && !strings.Contains(stderr.String(), "context canceled") {
			t.Errorf("%s: exit code %d, want %d; standard error: %q", line, got, want, stderr.String())
		}
	}
}
