package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// readyTimeout is how long a component may take to be ready: seconds, but
	// on a machine that also compiles and runs other tests.
	readyTimeout = 2 * time.Minute
	readyPoll    = 50 * time.Millisecond
	checkTimeout = 5 * time.Second
)

// A process is one component, which can be started again with the same
// command line after it has ended. Its output goes to the end of a file.
type process struct {
	name  string
	args  []string // the binary first
	dir   string   // its working and home folder, where its log is
	group int
	log   io.Writer // told when it ends unasked

	mu     sync.Mutex
	cmd    *exec.Cmd     // nil before the first start
	ended  chan struct{} // closed when cmd has ended
	asked  bool          // cmd's end is our doing
	closed bool          // never start again: the control plane is stopped
}

// start starts the component, which must not be running.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("start %s: it is running", p.name)
	}
	if p.closed {
		return fmt.Errorf("start %s: the control plane is stopped", p.name)
	}
	output, err := os.OpenFile(p.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer output.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Dir = p.dir
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH")} // nothing that configures it by surprise
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: p.group}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.asked = cmd, ended, false
	go func() {
		err := cmd.Wait()
		close(ended)
		p.mu.Lock()
		unasked := p.cmd == cmd && !p.asked && !p.closed
		p.mu.Unlock()
		if unasked {
			fmt.Fprintf(p.log, "%s ended by itself: %v\n", p.name, err)
		}
	}()
	return nil
}

// running must be called with the lock held.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// close says that the component is about to be killed for good.
func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// signal sends sig to the component. It returns a channel that is closed when
// the component has ended, nil if it is not running.
func (p *process) signal(sig syscall.Signal) (ended <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil, nil
	}
	p.asked = p.asked || sig == syscall.SIGTERM || sig == syscall.SIGKILL
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, fmt.Errorf("send %s to %s: %w", sig, p.name, err)
	}
	return p.ended, nil
}

// kill ends the component at once, if it is running, and waits for its end.
func (p *process) kill() error {
	ended, err := p.signal(syscall.SIGKILL)
	if err != nil || ended == nil {
		return err
	}
	<-ended
	return nil
}

// stop asks the component to end, if it is running, and kills it when ctx is
// done before it has.
func (p *process) stop(ctx context.Context) error {
	ended, err := p.signal(syscall.SIGTERM)
	if err != nil || ended == nil {
		return err
	}
	if _, err := p.signal(syscall.SIGCONT); err != nil { // in case it is paused
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop %s: %w", p.name, ctx.Err()), p.kill())
	}
}

// await returns when check does without an error. It gives up when the
// component ends, when ctx is done, and after readyTimeout; the error
// then has the end of the component's log. The component must have been started.
func (p *process) await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
		err := check(checkCtx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended before it was ready (%w):\n%s", p.name, err, p.tail(20))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to be ready: %w (%w):\n%s", p.name, ctx.Err(), err, p.tail(20))
		case <-poll.C:
		}
	}
}

func (p *process) logFile() string { return filepath.Join(p.dir, p.name+".log") }

// tail returns the last n lines of the component's log.
func (p *process) tail(n int) []byte {
	const enough = 64 << 10
	file, err := os.Open(p.logFile())
	if err != nil {
		return fmt.Appendf(nil, "no log: %v\n", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > enough {
		_, _ = file.Seek(-enough, io.SeekEnd) // reads more than wanted if it fails
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return fmt.Appendf(nil, "no log: %v\n", err)
	}
	return lastLines(content, n)
}

// lastLines returns the last n lines of text.
func lastLines(text []byte, n int) []byte {
	text = bytes.TrimRight(text, "\n")
	start := len(text)
	for ; n > 0 && start >= 0; n-- {
		start = bytes.LastIndexByte(text[:start], '\n')
	}
	return text[start+1:]
}
