// Package childprocesstest tests that nothing is left of what a process has started
// when it is killed with kill -9. A package that starts processes lets its test
// binary be such a process,
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
	"time"
)

// childVariable tells the test binary to be the child.
const childVariable = "KUBERELAY_TEST_CHILD"

// Started is what must be gone when the process that started it is.
type Started struct {
	Dir  string
	Pids []int // one at least
}

// RunIfChild makes this process the child, if KilledParent asked for it: it starts
// what is to be tested, and waits to be killed. Call it first in TestMain.
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

// KilledParent runs the test binary again as a child, kills that, and fails t unless
// all that it started goes.
func KilledParent(t *testing.T) {
	t.Run("all running", func(t *testing.T) { killedParent(t, false) })
	// An orphaned group with a stopped process gets a SIGHUP from the kernel, which
	// ends most of it: that alone would not show that the reaper kills.
	t.Run("one frozen", func(t *testing.T) { killedParent(t, true) })
}

func killedParent(t *testing.T, freeze bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$") // should RunIfChild not be called
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
		_ = cmd.Process.Kill() // it has ended otherwise
		_ = cmd.Wait()
		t.Fatalf("the child reports %+v (%v); does TestMain call childprocesstest.RunIfChild?", started, err)
	}
	for _, pid := range started.Pids {
		if !Alive(pid) {
			t.Errorf("process %d is not alive before the kill", pid)
		}
		t.Cleanup(func() {
			if t.Failed() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it is gone otherwise
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
	_ = cmd.Wait() // it was killed, and says so
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(started.Dir)
		return errors.Is(err, os.ErrNotExist)
	})
	for _, pid := range started.Pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !Alive(pid) })
	}
}

// eventually waits for what nobody tells us of.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.NewTimer(3 * time.Minute)
	defer limit.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !is() {
		select {
		case <-poll.C:
		case <-limit.C:
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// Alive is whether the process runs; one that is dead and waits for a parent
// to hear of it does not.
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
