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

// A Process is a server, which can be started again with the same command line
// after it has ended. The fields must not change while it runs; the methods may be
// called concurrently. Their errors name the process.
type Process struct {
	Name    string   // for people
	Args    []string // the binary first
	Env     []string // beside that of the group's commands
	Dir     string   // its working and home folder
	LogFile string   // its output goes to the end of it
	Group   *Group
	// Told is told when it ends unasked, at any time before Retire returns.
	Told io.Writer
	// TellOnlyOnceReady is for one whose start may be tried again: Told is not told of
	// an end before Await found it ready, which is in Await's error. Without it one
	// that nobody awaits is watched, too.
	TellOnlyOnceReady bool

	mu      sync.Mutex
	life    *life // the last, nil before the first
	retired bool  // no life may follow
}

// A life is a Process' from its start to its end.
type life struct {
	cmd     *exec.Cmd
	logFrom int64         // where in the log its output begins
	ended   chan struct{} // closed when cmd has ended

	// Under the Process' lock.
	ready  bool // has been
	frozen bool
	asked  bool // its end is our doing
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

// Start starts the process, which must not be running, and does not wait until
// it is ready: see Await.
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
		defer close(l.ended) // whoever waits for it knows that it has been told
		err := l.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !l.asked && !p.retired && (l.ready || !p.TellOnlyOnceReady) {
			fmt.Fprintf(p.Told, "%s ended by itself: %v\n", p.Name, err)
		}
	}()
	return nil
}

// Running is whether the process has been started and has not ended.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.running()
}

// PID is the id of the process that was last started, 0 before the first.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return 0
	}
	return p.life.cmd.Process.Pid
}

// Retire says that the process is about to be ended for good, with Kill, Stop or its
// group: it cannot be started again, and its end is nothing to tell.
func (p *Process) Retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
}

// signal sends the signals to the process. It returns a channel that is closed
// when the process has ended, nil if it is not running.
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

// Kill ends the process with kill -9, if it is running, and waits for its end.
func (p *Process) Kill() error {
	ended, err := p.signal(syscall.SIGKILL)
	if err != nil || ended == nil {
		return err
	}
	<-ended
	return nil
}

// Stop asks the process to end, if it is running, frozen or not, and waits for its
// end. If it has not ended when ctx is done it is killed, and the error is that of
// ctx with the end of the log.
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

// Freeze makes the process stand still without ending it, and waits until all its
// threads do. It is no error if it stands still already, but one if it is not running.
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
	if p.life.frozen { // it would be waited for in vain
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

// Thaw lets a frozen process go on; it is an error if it is not running.
func (p *Process) Thaw() error {
	ended, err := p.signal(syscall.SIGCONT)
	if err == nil && ended == nil {
		err = fmt.Errorf("thaw %s: it is not running", p.Name)
	}
	return err
}
