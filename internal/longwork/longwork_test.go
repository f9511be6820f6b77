package longwork

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func TestEstimate(t *testing.T) {
	at := func(seconds int, done int64) sample {
		return sample{start.Add(time.Duration(seconds) * time.Second), done}
	}
	for name, c := range map[string]struct {
		samples []sample
		now     sample
		amount  Amount
		speed   float64
		left    time.Duration
		known   bool
	}{
		"nothing is known yet": {nil, at(0, 5), Amount{Done: 5, Total: 10}, 0, 0, false},
		"the same moment":      {[]sample{at(0, 0)}, at(0, 5), Amount{Done: 5, Total: 10}, 0, 0, false},
		"half":                 {[]sample{at(0, 0)}, at(5, 5), Amount{Done: 5, Total: 10}, 1, 5 * time.Second, true},
		"since the oldest":     {[]sample{at(0, 0), at(4, 80)}, at(8, 80), Amount{Done: 80, Total: 100}, 10, 2 * time.Second, true},
		"it stands still":      {[]sample{at(0, 5), at(30, 5)}, at(60, 5), Amount{Done: 5, Total: 10}, 0, 0, false},
		"it went back":         {[]sample{at(0, 8)}, at(4, 5), Amount{Done: 5, Total: 10}, 0, 0, false},
		"no total":             {[]sample{at(0, 0)}, at(5, 5), Amount{Done: 5}, 1, 0, false},
		"a growing total":      {[]sample{at(0, 0)}, at(5, 5), Amount{Done: 5, Total: 10, Growing: true}, 1, 0, false},
		"done":                 {[]sample{at(0, 0)}, at(5, 10), Amount{Done: 10, Total: 10}, 2, 0, true},
		"more than the total":  {[]sample{at(0, 0)}, at(5, 20), Amount{Done: 20, Total: 10}, 4, 0, true},
		"years":                {[]sample{at(0, 0)}, at(100, 1), Amount{Done: 1, Total: 1e12}, 0.01, 0, false},
	} {
		speed := speed(c.samples, c.now)
		got, known := left(c.amount, speed)
		if speed != c.speed || got != c.left || known != c.known {
			t.Errorf("%s: got %v/s, %v, %v, want %v/s, %v, %v", name, speed, got, known, c.speed, c.left, c.known)
		}
	}
}

// TestWindow verifies that samples older than the window are dropped, so that their number is
// bounded.
func TestWindow(t *testing.T) {
	var samples []sample
	for second := range 1000 {
		samples = add(samples, sample{start.Add(time.Duration(second) * time.Second), int64(second)})
	}
	if n := len(samples); n != 31 || samples[0].done != 999-30 || samples[n-1].done != 999 {
		t.Errorf("%d samples, from %d to %d", n, samples[0].done, samples[n-1].done)
	}
}

func TestCounter(t *testing.T) {
	var nothing *Counter
	nothing.Begin()
	nothing.Expect(1)
	nothing.Add(1)
	nothing.Left(1, 2)
	nothing.End()
	if _, is := nothing.Measure(); is {
		t.Error("there is work without a counter")
	}
	var c Counter
	check := func(want Amount, going bool) {
		t.Helper()
		if got, is := c.Measure(); is != going || is && got != want {
			t.Errorf("got %+v, %v, want %+v, %v", got, is, want, going)
		}
	}
	check(Amount{}, false)
	c.Begin()
	c.Expect(10)
	c.Begin() // another piece of work begins
	var pieces sync.WaitGroup
	for range 4 {
		pieces.Go(func() { c.Add(2) })
	}
	pieces.Wait()
	check(Amount{Done: 8, Total: 10}, true)
	c.End()
	check(Amount{Done: 8, Total: 10}, true)
	c.End()
	check(Amount{}, false)
	c.Begin()
	check(Amount{}, true)
	c.Left(3, 4)
	check(Amount{Done: 3, Total: 7}, true)
}

// desk is a tracker of two counters, with its clock and its log.
type desk struct {
	now time.Time
	log bytes.Buffer
	*Tracker
	sync, load Counter
}

func newDesk() *desk {
	d := &desk{now: start}
	d.Tracker = New([]Work{{"load", "messages", d.load.Measure}, {"sync", "objects", d.sync.Measure}},
		func() time.Time { return d.now }, slog.New(slog.NewTextHandler(&d.log, nil)))
	return d
}

// pass advances the clock second by second. In each second, it adds n to the counter sync.
func (d *desk) pass(seconds int, n int64) {
	for range seconds {
		d.now = d.now.Add(time.Second)
		d.sync.Add(n)
		d.Sample()
	}
}

// lines returns the lines of the log, without time and level.
func (d *desk) lines() (lines []string) {
	for line := range strings.Lines(d.log.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), "msg=")
		lines = append(lines, text)
	}
	return lines
}

func TestProgress(t *testing.T) {
	d := newDesk()
	if got := d.Progress(); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
	d.sync.Begin()
	d.sync.Expect(100)
	if got := d.Progress(); len(got) != 1 || got[0].Work != "sync" || got[0].Done != 0 || got[0].Total != 100 || got[0].Known || !got[0].Since.Equal(start) {
		t.Errorf("at the start: %+v", got)
	}
	d.Sample()
	d.pass(5, 10)
	if got := d.Progress(); len(got) != 1 || got[0].Done != 50 || got[0].PerSecond != 10 || got[0].Left != 5*time.Second || !got[0].Known || !got[0].Since.Equal(start) {
		t.Errorf("after half of it: %+v", got)
	}
	d.load.Begin()
	if got := d.Progress(); len(got) != 2 || got[0].Work != "load" || got[1].Work != "sync" {
		t.Errorf("of two: %+v", got)
	}
	d.load.End()
	d.sync.End()
	if got := d.Progress(); len(got) > 0 {
		t.Errorf("after the end: %+v", got)
	}
}

// TestShortWorkIsNotLogged verifies that neither the progress nor the end of short work is logged.
func TestShortWorkIsNotLogged(t *testing.T) {
	d := newDesk()
	d.sync.Begin()
	d.sync.Expect(100)
	d.Sample()
	d.pass(9, 10)
	d.sync.End()
	d.pass(5, 0)
	if got := d.lines(); len(got) > 0 {
		t.Errorf("the log has %q", got)
	}
}

// TestLongWorkIsLogged verifies that long work is logged every 10 s, and at its end with the total.
func TestLongWorkIsLogged(t *testing.T) {
	d := newDesk()
	d.sync.Begin()
	d.sync.Expect(300)
	d.Sample()
	d.pass(25, 10)
	d.sync.End()
	d.pass(20, 0)
	want := []string{
		`"work in progress" work=sync unit=objects done=100 total=300 per_second=10 left=20s`,
		`"work in progress" work=sync unit=objects done=200 total=300 per_second=10 left=10s`,
		`"work completed" work=sync unit=objects total=300 seconds=26`,
	}
	if got := d.lines(); !slices.Equal(got, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	d.log.Reset()
	d.sync.Begin() // another piece
	d.Sample()
	d.pass(5, 1)
	if got := d.lines(); len(got) > 0 {
		t.Errorf("the log of the next piece of work is %q", got)
	}
}

// TestThePaceSlowsDown verifies that hours of work do not fill the log, and that work without
// progress is not logged.
func TestThePaceSlowsDown(t *testing.T) {
	d := newDesk()
	d.sync.Begin()
	d.Sample()
	const hour = 3600
	d.pass(hour, 1)
	moving := len(d.lines())
	if moving < 20 || moving > 50 {
		t.Errorf("%d lines in an hour", moving)
	}
	d.pass(hour, 0)
	if got := len(d.lines()); got > moving+1 {
		t.Errorf("%d lines in an hour without progress", got-moving)
	}
	if got := d.lines()[0]; got != fmt.Sprintf("%q work=sync unit=objects done=10 per_second=1", "work in progress") {
		t.Errorf("the first line is %s", got)
	}
}

// TestStalls verifies that work that makes progress in each interval does not stall.
func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter
		c.Begin()
		began := time.Now()
		go func() {
			for range 3 {
				time.Sleep(time.Second / 2) // on the synctest clock
				c.Add(1)
			}
		}()
		if !c.Stalls(t.Context(), time.Second) || time.Since(began) != 3*time.Second {
			t.Errorf("it stalls after %v, want 3 s", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.Stalls(ctx, time.Second) {
			t.Error("Stalls returned true after the end of its context")
		}
	})
}
