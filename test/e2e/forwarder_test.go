package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// forwarder is a process of the built binary. Its errors fail the test.
type forwarder struct {
	*harness.Forwarder
	t       *testing.T
	watched bool // the check at rest was done or is skipped
}

// newForwarder returns a forwarder for the cluster of the kubeconfig and the bus at url. The
// forwarder isn't started. set adds or overrides variables, without their prefix. Consistency points
// are off by default, because many tests count messages.
func newForwarder(t *testing.T, kubeconfig, url string, set map[string]string) *forwarder {
	t.Helper()
	address, err := harness.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{t: t, Forwarder: harness.New(harness.Options{
		Binary: binary, Dir: t.TempDir(), Address: address, Kubeconfig: kubeconfig, NATSURL: url, Cluster: clusterName,
		Set: merged(map[string]string{"RESOLVED_INTERVAL": "0s"}, set),
	})}
	t.Cleanup(func() {
		f.rests()
		f.kill()
		if t.Failed() {
			t.Logf("the forwarder's log ends with:\n%s", f.LogTail(40))
		}
	})
	return f
}

// restWindow is short, because every test waits for it. In this window, a loop without a pause
// exceeds the bounds a hundredfold. The torture suite uses a longer window.
const restWindow = 2 * time.Second

// rests checks that a healthy forwarder does no work while nothing changes. It runs once for each
// forwarder, when the forwarder stops or its test ends.
func (f *forwarder) rests() {
	ctx, cancel := context.WithTimeout(context.Background(), limit) // the test's context may have ended
	defer cancel()
	dirty, err := f.Metric(ctx, "kuberelay_dirty_objects")
	if f.watched || f.t.Failed() || err != nil || dirty > 0 || f.Ready(ctx) != nil {
		return
	}
	f.watched = true
	// The test or a cleanup may just have changed the cluster, so the first check may fail. A loop
	// would fail both checks.
	for range 2 {
		if err = f.Rest(ctx, restWindow); err == nil {
			return
		}
	}
	f.t.Error(err)
}

// start starts the process. It doesn't wait until the process is ready.
func (f *forwarder) start() *forwarder {
	f.t.Helper()
	if err := f.Start(); err != nil {
		f.t.Fatal(err)
	}
	return f
}

// ready waits until the process reports that it is ready.
func (f *forwarder) ready() *forwarder {
	f.t.Helper()
	f.await("the forwarder is ready", f.Ready)
	return f
}

// idle waits until the forwarder is ready and has nothing to publish.
func (f *forwarder) idle() {
	f.t.Helper()
	f.await("the forwarder has nothing to do", f.Idle)
}

// await waits until is returns nil. It fails the test at once if the process has ended.
func (f *forwarder) await(what string, is func(context.Context) error) {
	f.t.Helper()
	poll.Try(f.t, what, func(ctx context.Context) error {
		err := is(ctx)
		var ended *harness.EndedError
		if errors.As(err, &ended) {
			f.t.Fatal(err)
		}
		return err
	})
}

func (f *forwarder) get(ctx context.Context, path string) (status int, body string, err error) {
	return f.Get(ctx, path)
}

// metric returns the value of a metric, or the sum of its series.
func (f *forwarder) metric(name string) float64 {
	f.t.Helper()
	sum, err := f.Metric(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return sum
}

// kill kills the process with SIGKILL.
func (f *forwarder) kill() { f.Kill() }

// stop sends SIGTERM to the process and checks that it ends without an error.
func (f *forwarder) stop() {
	f.t.Helper()
	f.rests()
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	if err := f.Stop(ctx); err != nil {
		f.t.Errorf("after SIGTERM: %v", err)
	}
}

func (f *forwarder) log() string { return f.Log() }

// awaitLog waits until the log contains a text. The process may log an action only after it.
func (f *forwarder) awaitLog(text string) {
	f.t.Helper()
	f.await("the log says "+text, func(context.Context) error {
		if !strings.Contains(f.log(), text) {
			return errors.New("it does not")
		}
		return nil
	})
}

// run runs another command of the binary with the environment of f and waits for its end. On a busy
// machine, a response takes longer than the default timeout of the commands.
func (f *forwarder) run(args ...string) (code int, stdout, stderr string) {
	f.t.Helper()
	if slices.Contains([]string{"check", "status", "trace"}, args[0]) {
		args = append(args, "--timeout=1m")
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	code, stdout, stderr, err := f.Run(ctx, args...)
	if err != nil {
		f.t.Fatal(err)
	}
	return code, stdout, stderr
}

// sharedForwarder returns a forwarder for the shared control plane. The forwarder isn't started.
func sharedForwarder(t *testing.T, url string, set map[string]string) (*forwarder, *controlplane.ControlPlane) {
	t.Helper()
	cp := cluster.ControlPlane(t)
	return newForwarder(t, cp.Kubeconfig(), url, set), cp
}
