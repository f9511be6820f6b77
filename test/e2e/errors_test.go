package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestConfigurationErrors verifies that the forwarder ends at once, with a nonzero exit code and one
// clear error, if a retry can't help.
func TestConfigurationErrors(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	badToken := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := os.ReadFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(badToken, []byte(strings.Replace(string(text), "token: ", "token: wrong", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kubeconfig string
		set        map[string]string
		want       []string
	}{
		"a selector that is none": {set: map[string]string{"RESOURCES": "nonsense..x"},
			want: []string{"KUBERELAY_RESOURCES", `nonsense..x`}},
		"a bad URL": {set: map[string]string{"NATS_URL": "http://nats:4222"},
			want: []string{"KUBERELAY_NATS_URL", "use nats"}},
		"a credentials file that is missing": {set: map[string]string{"NATS_CREDS_FILE": "/nowhere/nats.creds"},
			want: []string{"KUBERELAY_NATS_CREDS_FILE", "/nowhere/nats.creds"}},
		"a filter that is no expression": {set: map[string]string{"FILTER": `object.status.phase = "Failed"`},
			want: []string{"KUBERELAY_FILTER:1:21", "write =="}},
		"a field that tells objects apart": {set: map[string]string{"DROP_FIELDS": "nodes:.metadata.name"},
			want: []string{"KUBERELAY_DROP_FIELDS", "nodes:.metadata.name", "identifies the object"}},
		"an unknown variable": {set: map[string]string{"RESOURCE": "pods"},
			want: []string{"KUBERELAY_RESOURCE", "KUBERELAY_RESOURCES"}},
		"a kubeconfig that is missing": {kubeconfig: "/nowhere/kubeconfig", want: []string{"KUBECONFIG"}},
		"a token that is refused":      {kubeconfig: badToken, want: []string{"credentials", "KUBECONFIG"}},
		"a port that is taken": {set: map[string]string{"LISTEN_ADDR": taken.Addr().String()},
			want: []string{"KUBERELAY_LISTEN_ADDR", taken.Addr().String()}},
		"a name that may not be read": {kubeconfig: cp.KubeconfigFor("little"), set: map[string]string{"CLUSTER_NAME": ""},
			want: []string{"KUBERELAY_CLUSTER_NAME", "kube-system"}},
		"a port for the built-in server that is taken": {set: map[string]string{"NATS_URL": "", "NATS_LISTEN": taken.Addr().String()},
			want: []string{"KUBERELAY_NATS_LISTEN", taken.Addr().String()}},
	} {
		t.Run(name, func(t *testing.T) {
			set := map[string]string{"RESOURCES": "configmaps"}
			for k, v := range c.set {
				set[k] = v
			}
			kubeconfig := c.kubeconfig
			if kubeconfig == "" {
				kubeconfig = cp.Kubeconfig()
			}
			code, _, stderr := newForwarder(t, kubeconfig, bus.URL, set).run("run")
			if code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			_, report, found := strings.Cut(stderr, "forwarder: ")
			if !found {
				t.Fatalf("no error was printed:\n%s", stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(report, want) {
					t.Errorf("the error does not name %s:\n%s", want, report)
				}
			}
		})
	}
}

// TestStartWaitsForServers_Slow starts the forwarder before the API server and the bus. The forwarder
// must report on /readyz and in the log which server it waits for, and continue when both are up.
func TestStartWaitsForServers_Slow(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{})
	if err := cp.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	bus := natsServer(t)
	bus.Kill()
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps"})
	f.start()
	f.awaitReason("the API server")
	f.awaitLog("waiting for the API server")
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.awaitReason(strings.TrimPrefix(bus.URL, "nats://"))
	bus.Start()
	f.idle()
	f.stop()
}

// awaitReason waits until /readyz fails with a body that contains part.
func (f *forwarder) awaitReason(part string) {
	f.t.Helper()
	poll.Try(f.t, "not ready because of "+part, func(ctx context.Context) error {
		status, body, err := f.get(ctx, "/readyz")
		if err != nil {
			return err
		}
		if status != http.StatusServiceUnavailable || !strings.Contains(body, part) {
			return fmt.Errorf("status %d: %s", status, body)
		}
		return nil
	})
}
