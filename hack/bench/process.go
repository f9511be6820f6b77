package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kuberelay/kuberelay/internal/childprocess"
)

// process is one that is measured, from its exec to where it is looked at.
type process struct {
	name    string
	cmd     *exec.Cmd
	stdin   io.WriteCloser // a role of ours ends when it is closed
	stdout  io.ReadCloser  // of a role of ours
	log     string
	started time.Time
	ended   chan struct{} // closed when it has
}

// startProcess starts a process of the group, which is killed when ctx ends. Its standard error goes to a file in dir,
// and what a role of ours says on its standard output is the parent's to read.
func startProcess(ctx context.Context, group *childprocess.Group, dir, name string, role bool, env []string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".log"), ended: make(chan struct{})}
	p.cmd = group.Command(ctx, dir, args...)
	p.cmd.Env = append(p.cmd.Env, env...)
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stderr = log
	// Not a pipe of package exec's, which Wait would close while it is being read.
	var theirs *os.File
	if role {
		if p.stdin, err = p.cmd.StdinPipe(); err != nil {
			return nil, err
		}
		ours, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.stdout, theirs, p.cmd.Stdout = ours, write, write
	}
	p.started = time.Now()
	err = p.cmd.Start()
	if theirs != nil {
		theirs.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is in its state
	}()
	return p, nil
}

// alive is an error once the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		text, err := os.ReadFile(p.log)
		return errors.Join(fmt.Errorf("%s ended: %s\n%s", p.name, p.cmd.ProcessState, childprocess.LastLines(string(text), 20)), err)
	default:
		return nil
	}
}

// stopLimit is how long a process may take to end in order.
const stopLimit = time.Minute

// stop ends the process in order, by SIGTERM or the end of its input.
func (p *process) stop() error {
	if p.stdin != nil {
		p.stdin.Close()
		defer p.stdout.Close()
	} else if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(stopLimit):
		_ = p.cmd.Process.Kill() // that it did not end is the error
		<-p.ended
	}
	if !p.cmd.ProcessState.Success() {
		return p.alive()
	}
	return nil
}

// usage is what a process has used, by the kernel's word.
type usage struct {
	cpu  time.Duration // user and system
	peak int64         // of the resident memory, in bytes
}

// tick is the unit of CPU times in /proc, USER_HZ: 100 a second on every Linux.
const tick = 10 * time.Millisecond

// usage reads /proc; getrusage tells a parent only of children that have ended.
func (p *process) usage() (usage, error) {
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return usage{}, err
	}
	cpu, err := parseCPU(stat)
	if err != nil {
		return usage{}, err
	}
	peak, err := parseKiB(status, "VmHWM:")
	return usage{cpu: cpu, peak: peak}, err
}

// parseCPU reads utime and stime, fields 14 and 15 of stat(5). The second, the name, may
// have blanks in it, and is in parentheses.
func parseCPU(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc's stat is %q", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// parseKiB reads a line of one of /proc's files that are made of such.
func parseKiB(text []byte, name string) (int64, error) {
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc has no %s", name)
}
