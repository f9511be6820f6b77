package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// documentedPermissions returns the code block below a heading of docs/permissions.md.
func documentedPermissions(t *testing.T, heading string) string {
	t.Helper()
	_, section, ok := strings.Cut(readFile(t, filepath.Join("..", "..", "docs", "permissions.md")), "\n## "+heading+"\n")
	_, code, found := strings.Cut(section, "```text\n")
	code, _, ended := strings.Cut(code, "```\n")
	if !ok || !found || !ended {
		t.Fatalf("docs/permissions.md has no code below %q", heading)
	}
	return code
}

// TestPermissionsNATS_Slow verifies that the permissions in docs/permissions.md suffice for readers and
// for a forwarder that publishes, purges and restarts. It also verifies that readers can't write.
func TestPermissionsNATS_Slow(t *testing.T) {
	configuration := strings.ReplaceAll(documentedPermissions(t, "NATS"), "prod-eu1", clusterName)
	bus := natstest.StartProcess(t, configuration)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	as := func(user, password string) *forwarder {
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
		return newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace, "DELETE_RETENTION": "1s", "CHECKPOINT_REFRESH": "1s",
			"NATS_USER": user, "NATS_PASSWORD_FILE": file,
		})
	}
	f, reader := as("forwarder", "change-me"), as("reader", "change-me-too")
	u.create(configMaps, namespace, configMap("a", "1"))
	u.create(configMaps, namespace, configMap("b", "1"))
	f.start().idle()
	u.delete(configMaps, namespace, "b")

	nc, err := nats.Connect(bus.URL, nats.UserInfo("reader", "change-me-too"), nats.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	subject := func(name string) string {
		return fmt.Sprintf("kuberelay.%s.core.configmaps.%s.%s", clusterName, namespace, name)
	}
	poll.Try(t, "the deleted object is purged", func(ctx context.Context) error {
		if _, err := stream.GetLastMsgForSubject(ctx, subject("b")); !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("its last message: %w", err)
		}
		return nil
	})
	f.idle()
	if code, stdout, stderr := reader.run("verify", settle); code != 0 {
		t.Errorf("verify as the reader ended with %d:\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := reader.run("tail", "--last", "--diff", "--count=1", "--resource=configmaps"); code != 0 || strings.Contains(stderr, "ermission") {
		t.Errorf("tail as the reader ended with %d:\n%s%s", code, stdout, stderr)
	}
	f.stop()
	f.start().idle()
	f.stop()

	for to, write := range map[string]func() error{
		subject("a"):                      func() error { _, err := nc.Request(subject("a"), []byte("{}"), time.Second); return err },
		"$JS.API.STREAM.PURGE.KUBERELAY":  func() error { return stream.Purge(bounded(t)) },
		"$JS.API.STREAM.DELETE.KUBERELAY": func() error { return js.DeleteStream(bounded(t), "KUBERELAY") },
	} {
		if err := write(); err == nil {
			t.Errorf("the reader may publish to %s", to)
		}
		poll.Try(t, "the server says that the reader may not publish to "+to, func(context.Context) error { // a denied request gets no response
			if last := nc.LastError(); !errors.Is(last, nats.ErrPermissionViolation) || !strings.Contains(last.Error(), to) {
				return fmt.Errorf("it says: %w", last)
			}
			return nil
		})
	}
}

// TestBuiltInToken verifies that commands with the forwarder's data directory read the built-in server
// with the generated token. Commands with another data directory are refused.
func TestBuiltInToken(t *testing.T) {
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	address, err := harness.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	in := func(dataDir string) *forwarder {
		return newForwarder(t, cp.Kubeconfig(), "", map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace, "NATS_LISTEN": address, "DATA_DIR": dataDir,
		})
	}
	dir := t.TempDir()
	f, other := in(dir), in(t.TempDir())
	f.start().idle()
	if code, stdout, stderr := f.run("verify", settle); code != 0 {
		t.Errorf("verify ended with %d:\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := f.run("tail", "--last", "--count=1"); code != 0 {
		t.Errorf("tail ended with %d: %s", code, stderr)
	}
	for _, args := range [][]string{{"verify", settle}, {"tail", "--last", "--count=1"}} {
		code, stdout, stderr := other.run(args...)
		if code != 2 || !strings.Contains(stderr, "KUBERELAY_DATA_DIR") || !strings.Contains(stderr, "KUBERELAY_NATS_TOKEN_FILE") {
			t.Errorf("%s of another user ended with %d:\n%s%s", args[0], code, stdout, stderr)
		}
	}
	f.stop()
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}
