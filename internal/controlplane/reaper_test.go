package controlplane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/kuberelay/kuberelay/internal/controlplane"
)

// childVariable tells the test binary to be the child of TestKilledParent.
const childVariable = "KUBERELAY_TEST_CONTROLPLANE_CHILD"

// What the child tells about its control plane.
type childReport struct {
	Dir  string
	Pids []int
}

// child starts a control plane, reports it, and waits to be killed.
func child() int {
	cp, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(childReport{cp.Dir(), cp.Pids()}); err != nil {
		return 1
	}
	select {}
}

func TestKilledParentLeavesNothing(t *testing.T) {
	t.Run("all running", func(t *testing.T) { testKilledParent(t, false) })
	// An orphaned group with a stopped process gets a SIGHUP from the kernel, which
	// ends most of it: that alone would not show that the reaper kills.
	t.Run("one hangs", func(t *testing.T) { testKilledParent(t, true) })
}

func testKilledParent(t *testing.T, hang bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var report childReport
	if err := json.NewDecoder(stdout).Decode(&report); err != nil {
		t.Fatalf("read the child's report: %v", err)
	}
	for _, pid := range report.Pids {
		if !alive(pid) {
			t.Errorf("process %d is not alive before the kill", pid)
		}
	}
	if hang {
		if err := syscall.Kill(report.Pids[len(report.Pids)-1], syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed, and says so
	eventually(t, "the folder is gone", func(context.Context) (bool, error) {
		_, err := os.Stat(report.Dir)
		return errors.Is(err, os.ErrNotExist), nil
	})
	for _, pid := range report.Pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func(context.Context) (bool, error) {
			return !alive(pid), nil
		})
	}
}

// alive is whether the process runs; one that is dead and waits for a parent
// to hear of it does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return !bytes.Contains(stat, []byte(") Z ")) // proc_pid_stat(5)
}
