package childprocess_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

const (
	// The script stubborn ends only with SIGKILL. The script docile ends with SIGTERM. Both write
	// "ready" when they are ready.
	stubborn = `trap "" HUP INT TERM; echo ready; while :; do sleep 1; done`
	docile   = `echo ready; exec sleep 1000`
)

// sleeper returns a process of the group that runs the script. The process's messages are discarded.
func sleeper(t *testing.T, group *childprocess.Group, dir, script string) *childprocess.Process {
	t.Helper()
	return &childprocess.Process{
		Name: "the sleeper", Args: []string{"/bin/sh", "-c", script}, Dir: dir,
		LogFile: filepath.Join(dir, "sleeper.log"), Group: group, Told: new(bytes.Buffer),
	}
}

// process returns a sleeper with its own group and directory. Both end with t.
func process(t *testing.T, script string) *childprocess.Process {
	t.Helper()
	group, err := childprocess.NewGroup("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Close(); err != nil {
			t.Error(err)
		}
	})
	return sleeper(t, group, t.TempDir(), script)
}

// lives returns a check that the script has written "ready" the given number of times.
func lives(p *childprocess.Process, times int) func(context.Context) error {
	return func(context.Context) error {
		if got := strings.Count(p.Tail(1000), "ready"); got != times {
			return fmt.Errorf("got ready %d times, want %d", got, times)
		}
		return nil
	}
}

func start(t *testing.T, p *childprocess.Process) {
	t.Helper()
	before := 0
	if _, err := os.Stat(p.LogFile); err == nil {
		before = strings.Count(p.Tail(1000), "ready")
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Await(t.Context(), lives(p, before+1)); err != nil {
		t.Fatal(err)
	}
}

func TestProcessLivesAgain(t *testing.T) {
	p := process(t, docile)
	if p.PID() != 0 || p.Running() {
		t.Errorf("before its start: got id %d, running %t, want none", p.PID(), p.Running())
	}
	stop := func() error { return p.Stop(t.Context()) }
	for _, test := range []struct {
		name   string
		freeze bool
		end    func() error
	}{
		{"kill", false, p.Kill},
		{"kill frozen", true, p.Kill},
		{"stop", false, stop},
		{"stop frozen", true, stop},
	} {
		t.Run(test.name, func(t *testing.T) {
			start(t, p)
			if err := p.Start(); err == nil || !strings.Contains(err.Error(), "start the sleeper: it is running") {
				t.Errorf("a second start: got error %v, want one that says that the process is running", err)
			}
			for range 2 { // a second Freeze has no effect
				if !test.freeze {
					break
				}
				if err := p.Freeze(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // ending the process again has no effect
				if err := test.end(); err != nil {
					t.Fatal(err)
				}
				if p.Running() {
					t.Error("runs after its end")
				}
			}
			if err := p.Freeze(); err == nil {
				t.Error("Freeze succeeds although the process is not running")
			}
			if err := p.Thaw(); err == nil {
				t.Error("Thaw succeeds although the process is not running")
			}
		})
	}
	p.Retire()
	if err := p.Start(); err == nil {
		t.Error("Start succeeds although the process is retired")
	}
}

func TestStopKillsAfterTheTimeout(t *testing.T) {
	p := process(t, stubborn)
	start(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.Stop(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "ready") {
		t.Errorf("got error %v, want %v with the end of the log", err, context.Canceled)
	}
	if p.Running() {
		t.Error("runs after Stop")
	}
}

func TestAwaitEnd(t *testing.T) {
	p := process(t, docile)
	start(t, p)
	check := errors.New("no answer")
	notReady := func(context.Context) error { return check }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Await(ctx, notReady); !errors.Is(err, context.Canceled) || !errors.Is(err, check) {
		t.Errorf("got error %v, want %v and %v", err, context.Canceled, check)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	p.Args = []string{"/bin/sh", "-c", "echo flag unknown; exit 1"}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	err := p.Await(t.Context(), notReady)
	var ended *childprocess.EndedError
	if !errors.As(err, &ended) || !errors.Is(err, check) {
		t.Fatalf("got error %v, want an EndedError of %v", err, check)
	}
	if got, want := ended.Log, "flag unknown"; got != want {
		t.Errorf("got log %q, want %q, without an earlier life's", got, want)
	}
	if got, want := p.Tail(2), "ready\nflag unknown"; got != want {
		t.Errorf("got tail %q, want %q, with an earlier life's", got, want)
	}
}

func TestUnexpectedEndIsReported(t *testing.T) {
	for _, test := range []struct {
		name          string
		onlyOnceReady bool
		ready, asked  bool
		retired       bool
		want          bool
	}{
		{name: "never awaited", want: true},
		{name: "before it was ready", onlyOnceReady: true, want: false},
		{name: "after it was ready", onlyOnceReady: true, ready: true, want: true},
		{name: "asked", ready: true, asked: true, want: false},
		{name: "retired", ready: true, retired: true, want: false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := process(t, docile)
			var told bytes.Buffer
			p.Told, p.TellOnlyOnceReady = &told, test.onlyOnceReady
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if test.ready {
				if err := p.Await(t.Context(), lives(p, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if test.retired {
				p.Retire()
			}
			kill := p.Kill
			if !test.asked {
				self, err := os.FindProcess(p.PID())
				if err != nil {
					t.Fatal(err)
				}
				kill = self.Kill
			}
			if err := kill(); err != nil {
				t.Fatal(err)
			}
			var ended *childprocess.EndedError
			if err := p.Await(t.Context(), func(context.Context) error { return errors.New("never") }); !errors.As(err, &ended) {
				t.Fatalf("got error %v, want an EndedError", err)
			}
			p.Retire() // no message is written after Retire
			if got := strings.Contains(told.String(), "the sleeper ended by itself: signal: killed"); got != test.want {
				t.Errorf("told %q, want an end told: %t", told.String(), test.want)
			}
		})
	}
}

func TestLastLines(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"", 2, ""},
		{"one", 2, "one"},
		{"one\ntwo\n", 2, "one\ntwo"},
		{"one\ntwo\nthree\n", 2, "two\nthree"},
		{"one\n\nthree\n\n", 2, "\nthree"},
	} {
		if got := childprocess.LastLines(test.text, test.n); got != test.want {
			t.Errorf("LastLines(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}
