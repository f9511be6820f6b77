package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A group is the process group that the broker and its tools are in, so that
// one signal reaches them all and a terminal's Ctrl-C none, and the reaper that
// kills it.
//
// Two shells belong to it. Both read from a pipe that nobody writes to and
// whose other end, the lifeline, only this process has: they wake up when it is
// closed, by us or by our death. The holder leads the group, whose id would be
// free for others while the broker is down. The reaper is in a session of its
// own, out of the reach of what kills us; it kills the group and then removes
// the folder, if it was given one.
type group struct {
	lifeline *os.File
	holder   *exec.Cmd
	reaper   *exec.Cmd
}

const (
	holderScript = `trap "" HUP INT TERM; read -r _`
	// Not «kill -KILL»: with «--» after it dash takes the group for a bad number.
	// A file that a dying process still made can spoil the removal, once.
	reaperScript = `trap "" HUP INT TERM; read -r _
kill -s KILL -- "-$1"
[ -z "$2" ] || rm -rf -- "$2" || { sleep 1; rm -rf -- "$2"; }`
)

// reapTimeout is how long the reaper may take, which needs milliseconds.
const reapTimeout = 30 * time.Second

// newGroup starts a group with nothing in it, whose end removes dir if that is
// not empty.
func newGroup(dir string) (*group, error) {
	r, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	g := &group{lifeline: lifeline}
	g.holder = exec.Command("/bin/sh", "-c", holderScript)
	g.holder.Stdin = r
	g.holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.holder.Start(); err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start process group: %w", err)
	}
	g.reaper = exec.Command("/bin/sh", "-c", reaperScript, "reaper", strconv.Itoa(g.id()), dir)
	g.reaper.Stdin = r
	g.reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.reaper.Start(); err != nil {
		lifeline.Close()
		return nil, errors.Join(fmt.Errorf("start reaper: %w", err), g.holder.Wait())
	}
	return g, nil
}

// id is the id that a process of the same session can join the group by.
func (g *group) id() int { return g.holder.Process.Pid }

// end kills the group, removes its folder, and waits until that is done.
func (g *group) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), reapTimeout)
	defer cancel()
	g.lifeline.Close()
	// The holder is waited for last: until then nothing else can have its id.
	reaped := make(chan error, 1)
	go func() { reaped <- g.reaper.Wait() }()
	var err error
	select {
	case err = <-reaped:
	case <-ctx.Done():
		err = ctx.Err()
		_ = g.reaper.Process.Kill() // the error is what counts
	}
	if err != nil {
		err = fmt.Errorf("reap process group: %w", err)
	}
	_ = syscall.Kill(-g.id(), syscall.SIGKILL) // the reaper's work, where it could not
	_ = g.holder.Wait()                        // it was killed, and says so
	return err
}
