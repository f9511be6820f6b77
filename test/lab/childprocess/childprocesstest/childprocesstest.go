// Package childprocesstest verifies that no process or directory remains when a process that started
// servers is killed with SIGKILL. A package that starts processes lets its test binary run as that
// process:
//
//	func TestMain(m *testing.M) {
//		childprocesstest.RunIfChild(start)
//		os.Exit(m.Run())
//	}
//
//	func TestKilledParentLeavesNothing(t *testing.T) { childprocesstest.KilledParent(t) }
package childprocesstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// childVariable tells the test binary to be the child.
const childVariable = "KUBERELAY_TEST_CHILD"

// Started lists the directory and the processes that must disappear after the child is killed.
type Started struct {
	Dir  string
	Pids []int // at least one
}

// RunIfChild makes this process the child if KilledParent started it as one. The child starts the
// processes under test and waits until it is killed. Call RunIfChild first in TestMain.
func RunIfChild(start func() (Started, error)) {
	if os.Getenv(childVariable) == "" {
		return
	}
	started, err := start()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(started)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// KilledParent runs the test binary again as a child and kills it. It fails t unless the child's directory
// and all its processes disappear.
func KilledParent(t *testing.T) {
	t.Run("all running", func(t *testing.T) { killedParent(t, false) })
	// If an orphaned process group contains a stopped process, the kernel sends the group a SIGHUP,
	// which ends most processes. So only the first case shows that the reaper kills the processes. The
	// second case shows that no frozen process remains.
	t.Run("one frozen", func(t *testing.T) { killedParent(t, true) })
}

func killedParent(t *testing.T, freeze bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$") // runs no test, even if TestMain doesn't call RunIfChild
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var started Started
	if err := json.NewDecoder(stdout).Decode(&started); err != nil || len(started.Pids) == 0 {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
		t.Fatalf("the child reports %+v (%v); does TestMain call childprocesstest.RunIfChild?", started, err)
	}
	for _, pid := range started.Pids {
		if !Alive(pid) {
			t.Errorf("process %d is not alive before the kill", pid)
		}
		t.Cleanup(func() {
			if t.Failed() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
			}
		})
	}
	if freeze {
		if err := syscall.Kill(started.Pids[len(started.Pids)-1], syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error only says that the process was killed
	poll.Holds(t, "the directory is gone", func() bool {
		_, err := os.Stat(started.Dir)
		return errors.Is(err, os.ErrNotExist)
	})
	for _, pid := range started.Pids {
		poll.Holds(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !Alive(pid) })
	}
}

// Alive reports whether the process runs. A zombie doesn't count.
func Alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return !bytes.Contains(stat, []byte(") Z ")) // proc_pid_stat(5)
}
