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

// A Group is a process group, so that one signal reaches all that is in it and a
// terminal's Ctrl-C none, and the reaper that kills it.
//
// Two shells belong to it. Both read from a pipe that nobody writes to and
// whose other end, the lifeline, only this process has: they wake up when it is
// closed, by us or by our death. The holder leads the group, which would end
// with its last process otherwise, and its id be free for others. The reaper is in
// a session of its own, out of the reach of what kills us; it kills the group and
// then removes the folder, if it was given one.
type Group struct {
	lifeline *os.File
	holder   *exec.Cmd
	reaper   *exec.Cmd
	close    func() error
}

const (
	holderScript = `trap "" HUP INT TERM; read -r _`
	// Not "kill -KILL": with "--" after it dash takes the group for a bad number.
	// A file that a dying process still made can spoil the removal, once.
	reaperScript = `trap "" HUP INT TERM; read -r _
kill -s KILL -- "-$1"
[ -z "$2" ] || rm -rf -- "$2" || { sleep 1; rm -rf -- "$2"; }`
)

// reapTimeout is how long the reaper may take, which needs milliseconds.
const reapTimeout = 30 * time.Second

// NewGroup starts a group with nothing in it, whose end removes dir. One that
// keeps data for the next has no dir, "".
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

// ID is the group's id, which is its holder's process id.
func (g *Group) ID() int { return g.holder.Process.Pid }

// Command returns a command that is in the group. Dir is its working and its home
// folder, and nothing else in its environment but PATH configures it by surprise.
func (g *Group) Command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.ID()}
	return cmd
}

// Close kills the group, removes its folder, and waits until that is done: half a
// minute at most, mostly no time. On an error the folder may be there still. Only
// the first call does anything, and all return its error.
func (g *Group) Close() error { return g.close() }

func (g *Group) end() error {
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
	_ = syscall.Kill(-g.ID(), syscall.SIGKILL) // the reaper's work, where it could not
	_ = g.holder.Wait()                        // it was killed, and says so
	return err
}
