package bar

import (
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/longwork"
)

func TestBarLine(t *testing.T) {
	of := func(done, total int64, left time.Duration) longwork.Progress {
		p := longwork.Progress{Work: "reading the bus", Unit: "messages", Left: left, Known: left > 0}
		p.Done, p.Total = done, total
		return p
	}
	for name, c := range map[string]struct {
		progress longwork.Progress
		width    int
		want     string
	}{
		"nothing yet": {of(0, 0, 0), 80, "reading the bus: 0 messages"},
		"no total":    {of(7, 0, 0), 80, "reading the bus: 7 messages"},
		"begun":       {of(0, 900, 0), 80, "reading the bus [....................] 0%, 0 of 900 messages"},
		"half":        {of(450, 900, 61*time.Second), 80, "reading the bus [##########..........] 50%, 450 of 900 messages, 61s left"},
		"done":        {of(900, 900, 0), 80, "reading the bus [####################] 100%, 900 of 900 messages"},
		"narrow":      {of(450, 900, 61*time.Second), 24, "reading the bus [#####"},
		"no room":     {of(450, 900, 61*time.Second), 0, ""},
	} {
		if got := line(c.progress, c.width); got[:min(len(got), len(c.want))] != c.want || len(got) >= max(c.width, 1) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestBarIsForTerminals verifies that output that is not a terminal gets no bar.
func TestBarIsForTerminals(t *testing.T) {
	var out strings.Builder
	var c longwork.Counter
	c.Begin()
	_, errs, stop := Show(&out, &out, longwork.Work{Name: "w", Unit: "u", Measure: c.Measure})
	stop()
	stop()
	if errs != &out || out.Len() > 0 {
		t.Errorf("it got %q", out.String())
	}
}
