package childprocess_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// A hook is a writer that calls itself on each write.
type hook func(text string)

func (h hook) Write(p []byte) (int, error) { h(string(p)); return len(p), nil }

func TestLockFileWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := childprocess.LockFile(t.Context(), path, hook(func(string) { t.Error("waits for a free lock") }), "tests")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var said string
	_, err = childprocess.LockFile(ctx, path, hook(func(text string) {
		said += text
		cancel()
	}), "tests")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	if want := "waiting for process " + strconv.Itoa(os.Getpid()) + `, which tests, once: \d+s so far\n`; !regexp.MustCompile("^" + want + "$").MatchString(said) {
		t.Errorf("says %q, want %q", said, want)
	}
	second, err := childprocess.LockFile(t.Context(), path, hook(func(string) { first.Close() }), "tests")
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestRunReportsProgress(t *testing.T) {
	for _, test := range []struct {
		name, script string
		wantLog      string
		wantErr      string
	}{
		{"done", "echo quiet", "testing ...\ntesting: took ", ""},
		{"failed", "echo reason >&2; exit 3", "testing ...\n", "testing: exit status 3\nreason"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			err := childprocess.Run(&log, "testing", exec.CommandContext(t.Context(), "/bin/sh", "-c", test.script))
			got := ""
			if err != nil {
				got = strings.TrimSpace(err.Error())
			}
			if got != test.wantErr {
				t.Errorf("got error %q, want %q", got, test.wantErr)
			}
			if !strings.HasPrefix(log.String(), test.wantLog) {
				t.Errorf("says %q, want it to begin with %q", log.String(), test.wantLog)
			}
		})
	}
}
