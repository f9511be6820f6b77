package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// readyTimeout is how long the broker may take to be ready: seconds, but on
	// a machine that also compiles and runs other tests.
	readyTimeout = 2 * time.Minute
	readyPoll    = 50 * time.Millisecond
	checkTimeout = 5 * time.Second
	// stopTimeout is how long the broker may take to end when it is asked to.
	stopTimeout = 30 * time.Second
)

// logLines is how much of the broker's log an error shows.
const logLines = 30

// A process is the broker, which can be started again with the same command
// line after it has ended. Its output goes to the end of a file.
type process struct {
	args    []string // java first
	dir     string   // its working and home folder
	group   int
	logFile string
	told    io.Writer // told when it ends unasked

	mu      sync.Mutex
	cmd     *exec.Cmd     // nil before the first start
	ended   chan struct{} // closed when cmd has ended
	logFrom int64         // where in the file cmd's output begins
	ready   bool          // cmd has been
	frozen  bool
	asked   bool // cmd's end is our doing
	closed  bool // never start again
}

// command returns a command that is in the group, and in an environment with
// nothing in it that configures Java by surprise.
func command(ctx context.Context, group int, dir string, output io.Writer, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"} // file names are UTF-8
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	return cmd
}

// start starts the broker, which must not be running.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return errors.New("it is running")
	}
	if p.closed {
		return errors.New("it is closed")
	}
	output, err := os.OpenFile(p.logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	if p.logFrom, err = output.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd := command(context.Background(), p.group, p.dir, output, p.args)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.ready, p.frozen, p.asked = cmd, ended, false, false, false
	go func() {
		err := cmd.Wait()
		close(ended)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ready && !p.asked && !p.closed {
			fmt.Fprintf(p.told, "the Kafka broker ended by itself: %v\n", err)
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

// close says that the broker is about to be killed for good.
func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// signal sends the signals to the broker. It returns a channel that is closed
// when the broker has ended, nil if it is not running.
func (p *process) signal(signals ...syscall.Signal) (ended <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil, nil
	}
	for _, sig := range signals {
		p.asked = p.asked || sig == syscall.SIGTERM || sig == syscall.SIGKILL
		if sig == syscall.SIGCONT {
			p.frozen = false
		}
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return nil, fmt.Errorf("send %s: %w", sig, err)
		}
	}
	return p.ended, nil
}

// kill ends the broker at once, if it is running, and waits for its end.
func (p *process) kill() error {
	ended, err := p.signal(syscall.SIGKILL)
	if err != nil || ended == nil {
		return err
	}
	<-ended
	return nil
}

// stop asks the broker to end, if it is running, frozen or not, and kills it
// when it has not after stopTimeout.
func (p *process) stop() error {
	ended, err := p.signal(syscall.SIGTERM, syscall.SIGCONT)
	if err != nil || ended == nil {
		return err
	}
	patience := time.NewTimer(stopTimeout)
	defer patience.Stop()
	select {
	case <-ended:
		return nil
	case <-patience.C:
		return errors.Join(fmt.Errorf("still running after %s, killed:\n%s", stopTimeout, p.tail(logLines)), p.kill())
	}
}

// freeze stops the broker without ending it, and waits until all its threads
// stand still.
func (p *process) freeze() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return errors.New("it is not running")
	}
	if p.frozen {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for it to stand still: %w", err)
		case !status.Stopped():
			return errors.New("it has ended")
		}
		p.frozen = true
		return nil
	}
}

// thaw lets the broker go on after freeze.
func (p *process) thaw() error {
	ended, err := p.signal(syscall.SIGCONT)
	if err == nil && ended == nil {
		err = errors.New("it is not running")
	}
	return err
}

// await returns when check does without an error. It gives up when the broker
// ends, when ctx is done, and after readyTimeout; the error then has the end of
// the broker's log. The broker must have been started.
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
			p.mu.Lock()
			p.ready = true
			p.mu.Unlock()
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("it ended before it was ready: %w", p.fault())
		case <-ctx.Done():
			return fmt.Errorf("wait for it to be ready: %w (%w):\n%s", ctx.Err(), err, p.tail(logLines))
		case <-poll.C:
		}
	}
}

// errPortTaken is why a broker ends that finds another listener on its port.
var errPortTaken = errors.New("one of its ports is taken")

// fault returns the end of the log as an error, which is errPortTaken if that
// is what the log says.
func (p *process) fault() error {
	tail := p.tail(logLines)
	if strings.Contains(tail, "Address already in use") {
		return fmt.Errorf("%w:\n%s", errPortTaken, tail)
	}
	return errors.New("its log says:\n" + tail)
}

// tail returns the last n lines of the log since the last start.
func (p *process) tail(n int) string {
	const enough = 64 << 10
	p.mu.Lock()
	from := p.logFrom
	p.mu.Unlock()
	file, err := os.Open(p.logFile)
	if err != nil {
		return fmt.Sprintf("no log: %v", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		from = max(from, info.Size()-enough)
	}
	content, err := io.ReadAll(io.NewSectionReader(file, from, enough))
	if err != nil {
		return fmt.Sprintf("no log: %v", err)
	}
	return lastLines(string(content), n)
}

// lastLines returns the last n lines of text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
