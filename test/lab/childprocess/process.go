package childprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// A Process is a server that can be started again with the same command line after it has ended.
// The fields must not change while it runs. The methods may be called concurrently, and their
// errors name the process.
type Process struct {
	Name    string   // used in messages
	Args    []string // begin with the binary
	Env     []string // added to the group's environment
	Dir     string   // working directory and home
	LogFile string   // the process's output is appended to this file
	Group   *Group
	// Told receives a message if the process ends unexpectedly before Retire is called.
	Told io.Writer
	// TellOnlyOnceReady suppresses that message until Await has found the process ready. Set it if the
	// caller may repeat a failed start. Await returns an error if the process ends earlier.
	TellOnlyOnceReady bool

	mu      sync.Mutex
	life    *life // the latest life, nil before the first start
	retired bool  // the process can't be started again
}

// A life is the time from one start of a Process to its end.
type life struct {
	cmd     *exec.Cmd
	logFrom int64         // the log's size at the start
	ended   chan struct{} // closed after cmd has ended

	// Guarded by the Process's mutex.
	ready  bool // Await found the process ready
	frozen bool
	asked  bool // SIGTERM or SIGKILL was sent to the process
}

func (l *life) running() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// Start starts the process, which must not be running. It doesn't wait until the process is ready: see
// [Process.Await].
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return nil
}

func (p *Process) start() error {
	if p.life.running() {
		return errors.New("it is running")
	}
	if p.retired {
		return errors.New("it was retired")
	}
	output, err := os.OpenFile(p.LogFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	l := &life{ended: make(chan struct{})}
	if l.logFrom, err = output.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	l.cmd = p.Group.Command(context.Background(), p.Dir, p.Args...)
	l.cmd.Env = append(l.cmd.Env, p.Env...)
	l.cmd.Stdout, l.cmd.Stderr = output, output
	if err := l.cmd.Start(); err != nil {
		return err
	}
	p.life = l
	go func() {
		defer close(l.ended) // after the message is written
		err := l.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !l.asked && !p.retired && (l.ready || !p.TellOnlyOnceReady) {
			fmt.Fprintf(p.Told, "%s ended by itself: %v\n", p.Name, err)
		}
	}()
	return nil
}

// Running reports whether the process was started and hasn't ended.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.running()
}

// PID returns the process id of the latest start, or 0 before the first start.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return 0
	}
	return p.life.cmd.Process.Pid
}

// Retire announces that Kill, Stop or the group is about to end the process. A retired process can't be
// started again, and Told receives no message when it ends.
func (p *Process) Retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
}

// signal sends the signals to the process. It returns a channel that is closed when the process
// has ended, or nil if it isn't running.
func (p *Process) signal(signals ...syscall.Signal) (ended <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.life.running() {
		return nil, nil
	}
	for _, sig := range signals {
		p.life.asked = p.life.asked || sig == syscall.SIGTERM || sig == syscall.SIGKILL
		if sig == syscall.SIGCONT {
			p.life.frozen = false
		}
		if err := p.life.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return nil, fmt.Errorf("send %s to %s: %w", sig, p.Name, err)
		}
	}
	return p.life.ended, nil
}

// Kill ends the process with SIGKILL, if it is running, and waits for its end.
func (p *Process) Kill() error {
	ended, err := p.signal(syscall.SIGKILL)
	if err != nil || ended == nil {
		return err
	}
	<-ended
	return nil
}

// Stop sends SIGTERM to the process, even if it is frozen, and waits for its end. If the process hasn't
// ended when ctx is done, Stop kills it and returns the error of ctx with the last lines of the log.
func (p *Process) Stop(ctx context.Context) error {
	ended, err := p.signal(syscall.SIGTERM, syscall.SIGCONT)
	if err != nil || ended == nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop %s: %w, killed:\n%s", p.Name, ctx.Err(), p.Tail(logLines)), p.Kill())
	}
}

// Freeze stops the process and waits until all its threads have stopped. It has no effect on a frozen
// process. It returns an error if the process isn't running.
func (p *Process) Freeze() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.freeze(); err != nil {
		return fmt.Errorf("freeze %s: %w", p.Name, err)
	}
	return nil
}

func (p *Process) freeze() error {
	if !p.life.running() {
		return errors.New("it is not running")
	}
	if p.life.frozen { // wait4 reports a stop only once
		return nil
	}
	if err := p.life.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.life.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for it to stand still: %w", err)
		case !status.Stopped():
			return errors.New("it has ended")
		}
		p.life.frozen = true
		return nil
	}
}

// Thaw resumes a frozen process. It returns an error if the process isn't running.
func (p *Process) Thaw() error {
	ended, err := p.signal(syscall.SIGCONT)
	if err == nil && ended == nil {
		err = fmt.Errorf("thaw %s: it is not running", p.Name)
	}
	return err
}
