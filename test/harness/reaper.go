package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// reaper kills a process if this process ends first, for example because a test timed out or was
// killed and couldn't clean up. The reaper is a shell that waits for the end of a pipe. Only this
// process has the other end of the pipe.
type reaper struct {
	lifeline *os.File
	shell    *exec.Cmd
}

const reaperScript = `trap "" HUP INT TERM; read -r _; kill -KILL "$1"`

func newReaper(pid int) (*reaper, error) {
	r, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	shell := exec.Command("/bin/sh", "-c", reaperScript, "reaper", strconv.Itoa(pid))
	shell.Stdin = r
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := shell.Start(); err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	return &reaper{lifeline, shell}, nil
}

// end ends the reaper without killing the process. Call end after the process has ended, because
// another process may soon receive the same id.
func (r *reaper) end() {
	_ = r.shell.Process.Kill() // it may have ended already
	_ = r.shell.Wait()
	r.lifeline.Close()
}
