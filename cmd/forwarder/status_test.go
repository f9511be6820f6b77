package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/status"
)

// forStatus serves status documents with the levels in the given order. After the last level, it
// repeats that level.
func forStatus(t *testing.T, token string, levels ...status.Level) (address, caFile string) {
	t.Helper()
	return serveStatus(t, token, "<html>", levels...)
}

// serveStatus is like forStatus. If there are no levels, it responds with the body.
func serveStatus(t *testing.T, token, body string, levels ...status.Level) (address, caFile string) {
	t.Helper()
	var n atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if len(levels) == 0 {
			_, _ = io.WriteString(w, body)
			return
		}
		d := status.Document{Bus: status.Bus{Sink: "nats"}}
		d.Verdict.Level = levels[min(int(n.Add(1)), len(levels))-1]
		_ = json.NewEncoder(w).Encode(d)
	}))
	t.Cleanup(server.Close)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, caFile
}

func TestStatusCommand(t *testing.T) {
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(address string, args ...string) (code int, stdout string) {
		t.Helper()
		var out, errOut bytes.Buffer
		code = run(t.Context(), append([]string{"status", "--address=" + address, "--timeout=1m"}, args...), &out, &errOut)
		if errOut.Len() > 0 || strings.Contains(out.String(), "secret") {
			t.Errorf("%q: on standard error %q, on standard output %q", args, &errOut, &out)
		}
		return code, out.String()
	}
	for level, want := range map[status.Level]int{status.OK: 0, status.Warning: 1, status.Critical: 2} {
		address, caFile := forStatus(t, "secret", level)
		if code, out := ask(address, "--token-file="+tokenFile, "--ca-file="+caFile); code != want || !strings.HasPrefix(out, strings.ToUpper(string(level))+": ") {
			t.Errorf("%s: exit code %d, want %d: %s", level, code, want, out)
		}
	}
	one, _ := forStatus(t, "", status.OK)
	if code, out := ask(one, "--cluster=prod"); code != 2 || !strings.Contains(out, `--cluster is "prod"`) {
		t.Errorf("--cluster of a forwarder of another cluster: exit code %d: %s", code, out)
	}
	address, _ := forStatus(t, "", status.Critical, status.Warning, status.OK)
	if code, out := ask(address, "--wait"); code != 0 || !strings.HasPrefix(out, "OK: ") {
		t.Errorf("--wait: exit code %d: %s", code, out)
	}
	refusing, _ := forStatus(t, "secret", status.OK)
	for format, want := range map[string]int{"table": 2, "nagios": 3} {
		if code, out := ask(refusing, "--output="+format); code != want || !strings.Contains(out, "--token-file") {
			t.Errorf("without a token, %s: exit code %d, want %d: %s", format, code, want, out)
		} else if format == "nagios" && !strings.HasPrefix(out, "KUBERELAY UNKNOWN - ") {
			t.Errorf("without a token: %s", out)
		}
	}
	unreviewed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, operations.NotReviewed+": no response within 3s", http.StatusServiceUnavailable)
	}))
	t.Cleanup(unreviewed.Close)
	code, out := ask(unreviewed.URL)
	if code != 2 || !strings.HasPrefix(out, "CRITICAL: the forwarder cannot review the token: ") || !strings.Contains(out, "503 Service Unavailable; the API server does not review tokens: no response within 3s\n") || strings.Contains(out, "release") {
		t.Errorf("without reviews of tokens: exit code %d: %s", code, out)
	}
	other, _ := forStatus(t, "")
	if code, out := ask(other); code != 2 || !strings.Contains(out, "is it a forwarder of this release?") {
		t.Errorf("another server: exit code %d: %s", code, out)
	}
	foreign, _ := serveStatus(t, "", "{}")
	for format, want := range map[string]int{"table": 2, "nagios": 3} {
		if code, out := ask(foreign, "--output="+format); code != want || !strings.Contains(out, "the response has no verdict; is it a forwarder of this release?") {
			t.Errorf("other JSON, %s: exit code %d, want %d: %s", format, code, want, out)
		}
	}
	_, wrongCA := forStatus(t, "")
	if code, out := ask(strings.Replace(address, "127.0.0.1", "localhost", 1), "--ca-file="+wrongCA); code != 2 || !strings.Contains(out, "certificate") {
		t.Errorf("a certificate for another name: exit code %d: %s", code, out)
	}
}
