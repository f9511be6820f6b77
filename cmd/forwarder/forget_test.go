package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestForgetHidesFields verifies that the deletes of forget have no field that is now dropped or hashed,
// although the last state on the bus has it.
func TestForgetHidesFields(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		release := event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
		bus.putBody(event.Created, release, "shop", "web", time.Now(), func(version string) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"shop","uid":"uid-of-prodweb","resourceVersion":%q},`+
				`"data":{"release":"canary-1","token":"canary-2","notes":"canary-3","port":"8080"}}`, version)
		})
		t.Setenv("KUBERELAY_HASH_FIELDS", "configmaps:.data.token")
		t.Setenv("KUBERELAY_DROP_FIELDS", "configmaps:.data.notes")
		t.Setenv("KUBERELAY_REDACTION_KEY_FILE", key)
		ctx, cancel := context.WithTimeout(t.Context(), tailLimit)
		defer cancel()
		var out, errs bytes.Buffer
		if code := run(ctx, []string{"forget", "--cluster=prod", "--yes", "--force"}, &out, &errs); code != 0 {
			t.Fatalf("exit code %d; stdout %q, stderr %q", code, out.String(), errs.String())
		}
		stdout, _ := runTail(t, 0, "--last", "--no-follow", "-o=json")
		if !strings.Contains(stdout, `"io.kuberelay.object.deleted"`) || !strings.Contains(stdout, `"port":"8080"`) {
			t.Fatalf("no delete with the last state: %s", stdout)
		}
		if n := strings.Count(stdout, "hmac-sha256:"); n != 2 || strings.Contains(stdout, "canary") {
			t.Errorf("the delete has %d hashes, want 2 and no other value: %s", n, stdout)
		}
	})
}

// TestConfirm verifies that only the name of the cluster confirms.
func TestConfirm(t *testing.T) {
	for answer, confirmed := range map[string]bool{"old\n": true, "old": true, "new\n": false, "\n": false, "": false} {
		if err := confirm(t.Context(), strings.NewReader(answer), io.Discard, "old"); (err == nil) != confirmed {
			t.Errorf("the answer %q: %v", answer, err)
		}
	}
}

// TestConfirmInterrupted verifies that a signal ends the wait for a confirmation.
func TestConfirmInterrupted(t *testing.T) {
	silent, user := io.Pipe()
	defer user.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := confirm(ctx, silent, io.Discard, "old"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the command was interrupted", err)
	}
}
