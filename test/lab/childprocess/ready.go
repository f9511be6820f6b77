package childprocess

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// readyTimeout limits the start of a process. A start takes seconds, but longer on a machine that
	// also compiles and runs other tests.
	readyTimeout = 5 * time.Minute
	readyPoll    = 50 * time.Millisecond
	checkTimeout = 20 * time.Second
	// logLines is the number of log lines that an error contains.
	logLines = 30
)

// EndedError reports that a process ended before it was ready.
type EndedError struct {
	Name string // the process's name
	Err  error  // the last error of the check
	Log  string // the last lines of the output since the start
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("%s ended before it was ready (%v):\n%s", e.Name, e.Err, e.Log)
}

func (e *EndedError) Unwrap() error { return e.Err }

// Await calls check until it returns nil. Await returns an EndedError if the process ends, or another
// error when ctx is done or after five minutes. Each error contains the last lines of the log. The
// process must have been started.
func (p *Process) Await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	p.mu.Lock()
	l := p.life
	p.mu.Unlock()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
		err := check(checkCtx)
		cancel()
		if err == nil {
			p.mu.Lock()
			l.ready = true
			p.mu.Unlock()
			return nil
		}
		select {
		case <-l.ended:
			return &EndedError{Name: p.Name, Err: err, Log: p.tail(l.logFrom, logLines)}
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to be ready: %w (%w):\n%s", p.Name, ctx.Err(), err, p.tail(l.logFrom, logLines))
		case <-poll.C:
		}
	}
}

// Tail returns the last lines of the log, which can include lines from an earlier start.
func (p *Process) Tail(lines int) string { return p.tail(0, lines) }

// tail returns the last lines of the log after the offset from.
func (p *Process) tail(from int64, lines int) string {
	const enough = 64 << 10
	file, err := os.Open(p.LogFile)
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
	return LastLines(string(content), lines)
}

// LastLines returns the last n lines of text, not counting empty lines at its end.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
