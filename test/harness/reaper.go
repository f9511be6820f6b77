package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// reaper kills a process if this one ends before it, however that comes: a test
// that times out, or is killed, does not clean up. It is a shell that waits for the
// end of a pipe whose other end only this process has.
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

// end ends the reaper without its work: the process has ended, and its id may be
// another's soon.
func (r *reaper) end() {
	_ = r.shell.Process.Kill() // it has ended otherwise
	_ = r.shell.Wait()
	r.lifeline.Close()
}
