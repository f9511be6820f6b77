package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Options configure a forwarder.
type Options struct {
	Binary     string
	Dir        string // for the forwarder's log, home and data; must exist
	Address    string // the address of the forwarder's operations server
	Kubeconfig string
	NATSURL    string
	Cluster    string // the cluster name

	// Set adds or replaces environment variables. Their names omit the prefix KUBERELAY_. An empty
	// value removes a variable.
	Set map[string]string
}

// Forwarder is a process of the built binary. It can be started again after it has ended. The
// methods are safe for concurrent use.
type Forwarder struct {
	options Options
	env     []string
	logFile string

	mu     sync.Mutex
	starts int // number of starts of the process
	cmd    *exec.Cmd
	ended  chan struct{} // closed after cmd has ended; nil before the first start
}

// New returns a forwarder that isn't started.
func New(o Options) *Forwarder {
	f := &Forwarder{options: o, logFile: filepath.Join(o.Dir, "forwarder.log")}
	f.Configure(o.Set)
	return f
}

// Configure replaces [Options.Set] for the next start.
func (f *Forwarder) Configure(set map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.options.Set = set
	o := f.options
	variables := map[string]string{
		"NATS_URL": o.NATSURL, "LISTEN_ADDR": o.Address, "CLUSTER_NAME": o.Cluster, "LOG_LEVEL": "debug",
		"RETRY_MAX_DELAY": "2s", "NATS_ACK_TIMEOUT": "3s", "DATA_DIR": o.Dir,
	}
	maps.Copy(variables, set)
	f.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + o.Dir, "KUBECONFIG=" + o.Kubeconfig}
	for k, v := range variables {
		if v != "" {
			f.env = append(f.env, "KUBERELAY_"+k+"="+v)
		}
	}
}

// UseBinary replaces [Options.Binary] for the next start.
func (f *Forwarder) UseBinary(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.options.Binary = path
}

// Start starts the process with additional environment variables. It doesn't wait until the process
// is ready. The process must not be running.
func (f *Forwarder) Start(more ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running() {
		return errors.New("start the forwarder: it is running")
	}
	log, err := os.OpenFile(f.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start the forwarder: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(f.options.Binary, "run")
	cmd.Env, cmd.Stderr, cmd.Stdout = slices.Concat(f.env, more), log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the forwarder: %w", err)
	}
	watch, err := newReaper(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill() // the process may have ended already
		_ = cmd.Wait()
		return fmt.Errorf("start the forwarder: %w", err)
	}
	ended := make(chan struct{})
	f.cmd, f.ended = cmd, ended
	f.starts++
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		watch.end()
		close(ended)
	}()
	return nil
}

func (f *Forwarder) running() bool {
	if f.cmd == nil {
		return false
	}
	select {
	case <-f.ended:
		return false
	default:
		return true
	}
}

// Running reports whether the process was started and hasn't ended.
func (f *Forwarder) Running() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running()
}

// Starts returns the number of times that the process has been started.
func (f *Forwarder) Starts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

// PID returns the process id of the latest start, or 0 before the first start.
func (f *Forwarder) PID() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cmd == nil {
		return 0
	}
	return f.cmd.Process.Pid
}

// Ended returns a channel that is closed when the process of the latest start has ended. The channel
// is nil before the first start.
func (f *Forwarder) Ended() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// Failure returns an error if the process has ended without success. If a signal ended the process,
// Failure also returns the signal.
func (f *Forwarder) Failure() (by syscall.Signal, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cmd == nil || f.running() || f.cmd.ProcessState.Success() {
		return 0, nil
	}
	if status, ok := f.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		by = status.Signal()
	}
	return by, fmt.Errorf("the forwarder ended: %s", f.cmd.ProcessState)
}

// Signal sends a signal to the process, if it is running.
func (f *Forwarder) Signal(s os.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running() {
		_ = f.cmd.Process.Signal(s)
	}
}

// Kill ends the process with SIGKILL, if it is running, and waits until it has ended.
func (f *Forwarder) Kill() {
	f.Signal(syscall.SIGKILL)
	if ended := f.Ended(); ended != nil {
		<-ended
	}
}

// Stop sends SIGTERM to the process and waits until it has ended or ctx ends. It returns an error if
// the process doesn't end with success.
func (f *Forwarder) Stop(ctx context.Context) error {
	ended := f.Ended()
	if ended == nil {
		return nil
	}
	f.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		_, err := f.Failure()
		return err
	case <-ctx.Done():
		return fmt.Errorf("the forwarder does not end: %w", ctx.Err())
	}
}

// Address returns the address of the operations server.
func (f *Forwarder) Address() string { return f.options.Address }

// Get sends a GET request to the operations server.
func (f *Forwarder) Get(ctx context.Context, path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.options.Address+path, http.NoBody)
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

// Ready returns nil if the process reports that it is ready. If the process has ended, the error
// is an [EndedError].
func (f *Forwarder) Ready(ctx context.Context) error {
	if _, err := f.Failure(); err != nil || !f.Running() {
		return &EndedError{err}
	}
	status, body, err := f.Get(ctx, "/readyz")
	if err == nil && status != http.StatusOK {
		err = errors.New(body)
	}
	return err
}

// EndedError reports that the process isn't running.
type EndedError struct{ Err error }

func (e *EndedError) Error() string {
	if e.Err == nil {
		return "the forwarder is not running"
	}
	return e.Err.Error()
}

func (e *EndedError) Unwrap() error { return e.Err }

// Metric returns the value of a metric, or the sum of its series. The name is a regular expression
// that may contain labels. Metric returns an error if no series matches.
func (f *Forwarder) Metric(ctx context.Context, name string) (float64, error) {
	all, err := f.scrape(ctx)
	if err != nil {
		return 0, err
	}
	total, found, err := sum(all, name)
	if err == nil && !found {
		err = fmt.Errorf("no metric %s", name)
	}
	return total, err
}

// scrape returns the text of /metrics.
func (f *Forwarder) scrape(ctx context.Context) (string, error) {
	status, body, err := f.Get(ctx, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return "", fmt.Errorf("read metrics: %w", err)
	}
	return body, nil
}

// sum adds up the series whose names match a regular expression. The result found reports whether
// any series matches.
func sum(metrics, name string) (total float64, found bool, err error) {
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(metrics, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, false, fmt.Errorf("metric %s: %w", name, err)
		}
		total, found = total+v, true
	}
	return total, found, nil
}

// Idle returns nil if the forwarder is ready and has nothing to publish.
func (f *Forwarder) Idle(ctx context.Context) error {
	if err := f.Ready(ctx); err != nil {
		return err
	}
	for metric, of := range map[string]string{"kuberelay_dirty_objects": "objects are dirty", "workqueue_depth": "keys are queued"} {
		switch n, err := f.Metric(ctx, metric); {
		case err != nil:
			return err
		case n > 0:
			return fmt.Errorf("%v %s", n, of)
		}
	}
	return nil
}

// Run runs another command of the binary with the same environment and waits for its end. A nonzero
// exit code isn't an error.
func (f *Forwarder) Run(ctx context.Context, args ...string) (code int, stdout, stderr string, err error) {
	cmd := f.Command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String(), err
}

// Command returns another command of the binary with the same environment.
func (f *Forwarder) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, f.options.Binary, args...)
	cmd.Env = slices.Clone(f.env)
	return cmd
}

// Log returns everything that the forwarder's processes have logged so far.
func (f *Forwarder) Log() string {
	text, _ := os.ReadFile(f.logFile)
	return string(text)
}

// LogTail returns the last lines of the log.
func (f *Forwarder) LogTail(lines int) string {
	all := strings.Split(f.Log(), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
