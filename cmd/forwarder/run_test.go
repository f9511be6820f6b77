package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
)

func TestWriter(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"POD_NAMESPACE": "apps", "POD_NAME": "web-0"}, "apps/web-0"},
		{map[string]string{"POD_NAME": "web-0"}, "web-0"},
		{map[string]string{"POD_NAMESPACE": "apps"}, host},
		{nil, host},
	} {
		if got := writerName(func(name string) string { return tc.env[name] }); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.env, got, tc.want)
		}
	}
}

// TestEmptyKeyFile verifies that an empty key file is an error and does not result in an empty
// key. The file can become empty after the configuration was loaded.
func TestEmptyKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := relayConfig(config.Config{Event: config.Event{RedactionKeyFile: file}}, io.Discard, slog.New(slog.DiscardHandler), nil)
	var wrong *config.Error
	if !errors.As(err, &wrong) || c.RedactionKey != nil {
		t.Errorf("got key %q, %v; want a wrong configuration", c.RedactionKey, err)
	}
}

// TestVersionOfGoInstall verifies that requests name the version of a build without linker flags, as the
// status does. They used to name none.
func TestVersionOfGoInstall(t *testing.T) {
	v, _ := builtFrom()
	if got, want := finder(config.Config{}, "verify", nil).UserAgent, "kuberelay-verify/"+v; v == "" || got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
