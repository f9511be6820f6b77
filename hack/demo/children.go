package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// children are the processes that the demo starts itself. They are in a process
// group of their own, so that a terminal's Ctrl-C reaches only the demo, who then
// ends them in order. The group's leader is a shell that reads from a pipe whose
// other end only the demo has: when the demo is no more, be it by kill -9, it ends
// the group and removes the folder.
type children struct {
	dir      string
	lifeline io.Closer
	reaper   *exec.Cmd
}

const reaperScript = `trap "" HUP INT TERM
read -r _
kill -s TERM -- "-$$"
sleep 1
rm -rf -- "$1"
kill -s KILL -- "-$$"`

// newChildren makes the group. The folder is removed with it.
func newChildren(dir string) (*children, error) {
	r, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c := &children{dir: dir, lifeline: lifeline}
	c.reaper = exec.Command("/bin/sh", "-c", reaperScript, "reaper", dir)
	c.reaper.Stdin = r
	c.reaper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.reaper.Start(); err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	return c, nil
}

// remove ends the group at once and removes the folder. Who is to end in order
// has been stopped before.
func (c *children) remove() error {
	group := c.reaper.Process.Pid
	_ = syscall.Kill(-group, syscall.SIGKILL) // the reaper is in it, so it is there
	_ = c.reaper.Wait()                       // it was killed, and says so
	c.lifeline.Close()
	return os.RemoveAll(c.dir)
}

// child is a running process of the group.
type child struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and all its output is written
	asked chan struct{} // closed when its end is our doing
}

// start starts a process, whose output goes to the writers. If it ends unasked,
// that is told to fail.
func (c *children) start(name string, env, args []string, stdout, stderr io.Writer, fail func(error)) (*child, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: c.reaper.Process.Pid}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &child{name: name, cmd: cmd, ended: make(chan struct{}), asked: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // what it came to is in the state
		select {
		case <-p.asked:
		default:
			fail(fmt.Errorf("«%s» ended by itself: %s", name, cmd.ProcessState))
		}
	}()
	return p, nil
}

// kill is kill -9.
func (p *child) kill() error { return p.end(syscall.SIGKILL, time.Minute) }

// stop lets the process end in order, for some time.
func (p *child) stop() error { return p.end(syscall.SIGTERM, 10*time.Second) }

func (p *child) end(sig syscall.Signal, patience time.Duration) error {
	select {
	case <-p.asked:
		return nil
	default:
		close(p.asked)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end %s: it goes on for %s after the signal %q", p.name, patience, sig)
	}
}
