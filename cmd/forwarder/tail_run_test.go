package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// tailLimit bounds every wait. Only a failing test reaches it.
const tailLimit = 3 * time.Minute

// lines collects printed lines, so that a test can wait for them.
type lines struct {
	t    *testing.T
	name string
	ch   chan string
	w    *io.PipeWriter
}

func newLines(t *testing.T, name string) *lines {
	r, w := io.Pipe()
	l := &lines{t: t, name: name, ch: make(chan string, 10_000), w: w}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(l.ch)
		for s := bufio.NewScanner(r); s.Scan(); {
			l.ch <- s.Text()
		}
	})
	t.Cleanup(func() { w.Close(); reading.Wait() })
	return l
}

func (l *lines) next() string {
	l.t.Helper()
	select {
	case line, ok := <-l.ch:
		if !ok {
			l.t.Fatalf("%s ended", l.name)
		}
		return line
	case <-time.After(tailLimit):
		l.t.Fatalf("nothing on %s within %s", l.name, tailLimit)
		return ""
	}
}

func (l *lines) want(wants ...string) {
	l.t.Helper()
	for _, want := range wants {
		if got := squeeze(l.next()); !strings.Contains(got, want) {
			l.t.Fatalf("got %q on %s, want %q in it", got, l.name, want)
		}
	}
}

// tailProcess is a running tail.
type tailProcess struct {
	t              *testing.T
	stdout, stderr *lines
	cancel         func()
	code           chan int
}

func startTail(t *testing.T, args ...string) *tailProcess {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &tailProcess{t: t, stdout: newLines(t, "stdout"), stderr: newLines(t, "stderr"), cancel: cancel, code: make(chan int, 1)}
	var running sync.WaitGroup
	running.Go(func() { p.code <- run(ctx, append([]string{"tail"}, args...), p.stdout.w, p.stderr.w) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

func (p *tailProcess) exits(want int) {
	p.t.Helper()
	select {
	case got := <-p.code:
		if got != want {
			p.t.Errorf("exit code %d, want %d", got, want)
		}
	case <-time.After(tailLimit):
		p.t.Fatalf("not ended within %s", tailLimit)
	}
}

// runTail runs tail with arguments that make it exit, and returns its output.
func runTail(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tailLimit)
	defer cancel()
	var out, errs bytes.Buffer
	got := run(ctx, append([]string{"tail"}, args...), &out, &errs)
	if ctx.Err() != nil {
		t.Fatalf("not ended within %s, stderr %q, stdout %q", tailLimit, errs.String(), out.String())
	}
	if got != code {
		t.Fatalf("exit code %d, want %d; stderr %q", got, code, errs.String())
	}
	return out.String(), errs.String()
}

var tailTime = regexp.MustCompile(`(?m)^(\d{4}-\d\d-\d\d | *)\d\d:\d\d:\d\d\.\d{3}  `)

// squeeze removes the times and the alignment from printed lines.
func squeeze(s string) string {
	return regexp.MustCompile(` +`).ReplaceAllString(tailTime.ReplaceAllString(s, ""), " ")
}
