package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kuberelay/kuberelay/internal/controlplane"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
)

// forwarder is a process of the built binary.
type forwarder struct {
	t       *testing.T
	env     []string
	address string // of the operations server
	logFile string
	cmd     *exec.Cmd
	ended   chan error
}

// newForwarder prepares a forwarder of the cluster and the bus at url; set adds
// variables without their prefix, or overrides them.
func newForwarder(t *testing.T, kubeconfig, url string, set map[string]string) *forwarder {
	t.Helper()
	f := &forwarder{
		t: t, address: "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t)),
		logFile: filepath.Join(t.TempDir(), "forwarder.log"),
	}
	variables := map[string]string{
		"NATS_URL": url, "LISTEN_ADDR": f.address, "CLUSTER_NAME": clusterName, "LOG_LEVEL": "debug",
		"RETRY_MAX_DELAY": "2s", "NATS_ACK_TIMEOUT": "3s", "DATA_DIR": t.TempDir(),
	}
	for k, v := range set {
		variables[k] = v
	}
	f.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + kubeconfig}
	for k, v := range variables {
		if v != "" {
			f.env = append(f.env, "KUBERELAY_"+k+"="+v)
		}
	}
	t.Cleanup(func() {
		f.kill()
		if t.Failed() {
			t.Logf("the forwarder's log ends with:\n%s", f.logTail())
		}
	})
	return f
}

// start starts the process and returns without waiting for it to be ready.
func (f *forwarder) start() *forwarder {
	f.t.Helper()
	log, err := os.OpenFile(f.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	f.cmd = exec.Command(binary, "run")
	f.cmd.Env, f.cmd.Stderr, f.cmd.Stdout = f.env, log, log
	if err := f.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(f.cmd, f.ended)
	return f
}

// ready waits until the process says that it is.
func (f *forwarder) ready() *forwarder {
	f.t.Helper()
	eventually(f.t, "the forwarder is ready", func(ctx context.Context) error {
		select {
		case err := <-f.ended:
			f.ended <- err
			f.t.Fatalf("the forwarder ended: %v", err)
		default:
		}
		status, body, err := f.get(ctx, "/readyz")
		if err == nil && status != http.StatusOK {
			err = errors.New(body)
		}
		return err
	})
	return f
}

func (f *forwarder) get(ctx context.Context, path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.address+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// metric reads a metric without labels, or the sum of one with.
func (f *forwarder) metric(name string) float64 {
	f.t.Helper()
	status, body, err := f.get(f.t.Context(), "/metrics")
	if err != nil || status != http.StatusOK {
		f.t.Fatalf("metrics: status %d, %v", status, err)
	}
	sum, found := 0.0, false
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(body, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			f.t.Fatal(err)
		}
		sum, found = sum+v, true
	}
	if !found {
		f.t.Fatalf("no metric %s", name)
	}
	return sum
}

// kill ends the process as kill -9 does.
func (f *forwarder) kill() {
	if f.cmd == nil {
		return
	}
	f.cmd.Process.Kill()
	<-f.ended
	f.cmd = nil
}

// stop asks the process to end and checks that it ends well.
func (f *forwarder) stop() {
	f.t.Helper()
	f.cmd.Process.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	select {
	case err := <-f.ended:
		if err != nil {
			f.t.Errorf("after SIGTERM the forwarder ended with %v, want exit code 0", err)
		}
	case <-ctx.Done():
		f.t.Fatal("the forwarder did not end after SIGTERM")
	}
	f.cmd = nil
}

// idle waits until the forwarder is ready and has nothing left to publish.
func (f *forwarder) idle() {
	f.t.Helper()
	f.ready()
	eventually(f.t, "the forwarder has nothing to do", func(context.Context) error {
		if n := f.metric("kuberelay_dirty_objects"); n > 0 {
			return fmt.Errorf("%v objects are dirty", n)
		}
		if n := f.metric("workqueue_depth"); n > 0 {
			return fmt.Errorf("%v keys are queued", n)
		}
		return nil
	})
}

func (f *forwarder) log() string {
	text, _ := os.ReadFile(f.logFile)
	return string(text)
}

func (f *forwarder) logTail() string {
	lines := strings.Split(f.log(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// run runs the binary to its end with the environment of f.
func (f *forwarder) run(args ...string) (code int, stdout, stderr string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errOut bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = f.env, &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// sharedForwarder is a forwarder of the shared control plane.
func sharedForwarder(t *testing.T, url string, set map[string]string) (*forwarder, *controlplane.ControlPlane) {
	t.Helper()
	cp := cluster.ControlPlane(t)
	return newForwarder(t, cp.Kubeconfig(), url, set), cp
}
