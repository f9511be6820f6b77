package credential

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	load := func() (string, error) { return Secret(path) }
	if _, err := NewFile("THE_FILE", logger, load); err == nil || !strings.Contains(err.Error(), "THE_FILE") {
		t.Errorf("missing file: %v", err)
	}
	write(t, path, "first\r\n")
	f, err := NewFile("THE_FILE", logger, load)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "second\n")
	if got := f.Last(); got != "first" {
		t.Errorf("last: %q, want the first content", got)
	}
	if got := f.Get(); got != "second" {
		t.Errorf("got %q, want the current content", got)
	}
	for _, spoil := range []func(){func() { write(t, path, "\n") }, func() { os.Remove(path) }} {
		log.Reset()
		spoil()
		if got := f.Get(); got != "second" {
			t.Errorf("got %q, want the last valid content", got)
		}
		if s := log.String(); !strings.Contains(s, "THE_FILE") || strings.Contains(s, "second") {
			t.Errorf("logged: %s", s)
		}
	}
}

func TestInvalidFiles(t *testing.T) {
	ca := tlstest.NewCA(t)
	_, cert, key := ca.Issue("one")
	_, _, otherKey := ca.Issue("two")
	if _, err := Roots(ca.File); err != nil {
		t.Error(err)
	}
	if _, err := Roots(key); err == nil {
		t.Error("a key is accepted as a certificate authority")
	}
	if _, err := Pair(cert, key); err != nil {
		t.Error(err)
	}
	if _, err := Pair(cert, otherKey); err == nil {
		t.Error("a key is accepted for another certificate")
	}
}

// TestWatcher verifies that Changed detects files that are replaced in each of the common ways.
func TestWatcher(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// The kubelet uses this layout for a volume.
	for _, version := range []string{"one", "two"} {
		must(os.Mkdir(at(version), 0o700))
		write(t, at(version)+"/token", version)
	}
	must(os.Symlink("one", at("..data")))
	must(os.Symlink("..data/token", at("token")))
	write(t, at("plain"), "aa")
	write(t, at("other"), "")
	w := NewWatcher(at("token"), "", at("plain"), at("other"), at("missing"))
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"a link to another directory", func() {
			must(os.Symlink("two", at("..data_tmp")))
			must(os.Rename(at("..data_tmp"), at("..data")))
		}, true},
		{"written in place, of the same length", func() { write(t, at("plain"), "bb") }, true},
		{"written anew, the same", func() { write(t, at("plain"), "bb") }, false},
		{"renamed", func() { write(t, at("new"), "cc"); must(os.Rename(at("new"), at("plain"))) }, true},
		{"moved from one file to the next", func() { write(t, at("plain"), ""); write(t, at("other"), "cc") }, true},
		{"gone", func() { must(os.Remove(at("other"))) }, true},
		{"there", func() { write(t, at("missing"), "x") }, true},
	} {
		step.do()
		if got := w.Changed(); got != step.want {
			t.Errorf("%s: changed: %v, want %v", step.name, got, step.want)
		}
		if w.Changed() {
			t.Errorf("%s: reported twice", step.name)
		}
	}
}

// TestServerTLS verifies that the next connection uses a replaced certificate, unless the new one is
// invalid.
func TestServerTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	first, cert, key := ca.Issue("server")
	config, err := ServerTLS("THE_FILE", slog.New(slog.DiscardHandler), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	serves := func(what string, want tls.Certificate) {
		t.Helper()
		got, err := config.GetCertificate(nil)
		if err != nil || !bytes.Equal(got.Certificate[0], want.Certificate[0]) {
			t.Errorf("%s: another certificate is served (%v)", what, err)
		}
	}
	serves("at the start", first)
	second, otherCert, otherKey := ca.Issue("server")
	if err := os.Rename(otherCert, cert); err != nil {
		t.Fatal(err)
	}
	serves("the key is not there yet", first)
	if err := os.Rename(otherKey, key); err != nil {
		t.Fatal(err)
	}
	serves("both are replaced", second)
}

// TestWatchEnds verifies that Watch ends with its context.
func TestWatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Watch(ctx, func(context.Context) { t.Error("checks") })
}
