package kafkabroker_test

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
	"time"

	"github.com/kuberelay/kuberelay/internal/kafkabroker"
)

// childVariable tells the test binary to be the child of TestKilledParent.
const childVariable = "KUBERELAY_TEST_KAFKABROKER_CHILD"

// What the child tells about its broker.
type childReport struct {
	Dir  string
	Pids []int
}

// child starts a broker, reports it, and waits to be killed.
func child() int {
	b, err := kafkabroker.Start(context.Background(), kafkabroker.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv(childVariable) == "frozen" {
		// An orphaned group with a stopped process gets a SIGHUP from the kernel.
		if err := b.Freeze(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(childReport{b.Dir(), b.Pids()}); err != nil {
		return 1
	}
	select {}
}

func TestKilledParentLeavesNothing(t *testing.T) {
	for _, state := range []string{"running", "frozen"} {
		t.Run(state, func(t *testing.T) { testKilledParent(t, state) })
	}
}

func testKilledParent(t *testing.T, state string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childVariable+"="+state)
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
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed, and says so
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(report.Dir)
		return errors.Is(err, os.ErrNotExist)
	})
	for _, pid := range report.Pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
}

// eventually waits for what nobody tells us of.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !is() {
		select {
		case <-poll.C:
		case <-limit.C:
			t.Fatalf("not within a minute: %s", what)
		}
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
