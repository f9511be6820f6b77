package childprocess_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
	"github.com/kuberelay/kuberelay/test/lab/childprocess/childprocesstest"
)

func TestMain(m *testing.M) {
	childprocesstest.RunIfChild(func() (childprocesstest.Started, error) {
		dir, err := os.MkdirTemp("", "kuberelay-childprocess-")
		if err != nil {
			return childprocesstest.Started{}, err
		}
		group, err := childprocess.NewGroup(dir)
		if err != nil {
			return childprocesstest.Started{}, err
		}
		p := &childprocess.Process{
			Name: "sleeper", Args: []string{"/bin/sh", "-c", stubborn}, Dir: dir,
			LogFile: filepath.Join(dir, "sleeper.log"), Group: group, Told: os.Stderr,
		}
		if err := p.Start(); err != nil {
			return childprocesstest.Started{}, err
		}
		return childprocesstest.Started{Dir: dir, Pids: []int{group.ID(), p.PID()}}, nil
	})
	os.Exit(m.Run())
}

func TestKilledParentLeavesNothing(t *testing.T) { childprocesstest.KilledParent(t) }

func TestGroupClose(t *testing.T) {
	for _, test := range []struct {
		name string
		keep bool
	}{
		{"directory removed", false},
		{"directory kept", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "of the -group")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			removed := dir
			if test.keep {
				removed = ""
			}
			group, err := childprocess.NewGroup(removed)
			if err != nil {
				t.Fatal(err)
			}
			p := sleeper(t, group, dir, stubborn)
			start(t, p)
			for range 2 {
				if err := group.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Kill(); err != nil { // returns after the process has ended
				t.Error(err)
			}
			for _, pid := range []int{group.ID(), p.PID()} {
				if childprocesstest.Alive(pid) {
					t.Errorf("process %d is alive", pid)
				}
			}
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) == test.keep {
				t.Errorf("the directory: got error %v, want it kept: %t", err, test.keep)
			}
		})
	}
}
