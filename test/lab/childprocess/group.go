package childprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A Group is a process group and the reaper that kills it. One signal reaches every process in the
// group, and Ctrl-C in a terminal reaches none.
//
// A Group runs two shells. Both read from a pipe that nothing writes to. Only this process has the
// other end, the lifeline, so the shells wake up when this process closes it or dies. One shell, the
// holder, leads the group. Without the holder, the group would end with its last process, and another
// group could receive its id. The other shell, the reaper, runs in its own session, so a signal to the
// process group of this process doesn't reach it. The reaper kills the group and then removes the
// group's directory, if it has one.
type Group struct {
	lifeline *os.File
	holder   *exec.Cmd
	reaper   *exec.Cmd
	close    func() error
}

const (
	holderScript = `trap "" HUP INT TERM; read -r _`
	// The script can't use "kill -KILL", because dash then rejects the group after "--" as a bad number. The
	// script repeats a failed removal once, because a dying process can still create a file.
	reaperScript = `trap "" HUP INT TERM; read -r _
kill -s KILL -- "-$1"
[ -z "$2" ] || rm -rf -- "$2" || { sleep 1; rm -rf -- "$2"; }`
)

// reapTimeout limits the wait for the reaper, which normally takes milliseconds.
const reapTimeout = 30 * time.Second

// NewGroup starts an empty group. When the group ends, the reaper removes dir, unless dir is "".
func NewGroup(dir string) (*Group, error) {
	r, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	g := &Group{lifeline: lifeline}
	g.close = sync.OnceValue(g.end)
	g.holder = exec.Command("/bin/sh", "-c", holderScript)
	g.holder.Stdin = r
	g.holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.holder.Start(); err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start process group: %w", err)
	}
	g.reaper = exec.Command("/bin/sh", "-c", reaperScript, "reaper", strconv.Itoa(g.ID()), dir)
	g.reaper.Stdin = r
	g.reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.reaper.Start(); err != nil {
		lifeline.Close()
		return nil, errors.Join(fmt.Errorf("start reaper: %w", err), g.holder.Wait())
	}
	return g, nil
}

// ID returns the group id, which is the process id of the holder.
func (g *Group) ID() int { return g.holder.Process.Pid }

// Command returns a command that runs in the group. Its working directory and home is dir. Its environment
// contains only HOME and PATH.
func (g *Group) Command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.ID()}
	return cmd
}

// Close kills the group and removes its directory. It waits until both are done, at most half a minute.
// After an error, the directory may still exist. Only the first call has an effect. All calls return its
// error.
func (g *Group) Close() error { return g.close() }

func (g *Group) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), reapTimeout)
	defer cancel()
	g.lifeline.Close()
	// Wait for the holder last: until then, no other group can receive its id.
	reaped := make(chan error, 1)
	go func() { reaped <- g.reaper.Wait() }()
	var err error
	select {
	case err = <-reaped:
	case <-ctx.Done():
		err = ctx.Err()
		_ = g.reaper.Process.Kill() // err already reports the timeout
	}
	if err != nil {
		err = fmt.Errorf("reap process group: %w", err)
	}
	_ = syscall.Kill(-g.ID(), syscall.SIGKILL) // in case the reaper failed
	_ = g.holder.Wait()                        // the error only says that the holder was killed
	return err
}
