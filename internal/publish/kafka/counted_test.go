package kafka

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/longwork"
)

// TestReadsAreCounted verifies that a takeover and a load count all offsets that they read, with
// several partitions at once.
func TestReadsAreCounted(t *testing.T) {
	w := newWriters(t, 3)
	b := w.open()
	w.publishSome(b, "a", 30)
	w.flushed(b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var takeover, reading longwork.Counter
	w.opts.Takeover, w.opts.Reading = &takeover, &reading
	check := func(what string, c *longwork.Counter) {
		t.Helper()
		if a, is := c.Measure(); !is || a.Done < 30 || a.Done != a.Total {
			t.Errorf("%s: %+v, %v", what, a, is)
		}
	}
	takeover.Begin() // the counter can then be measured after the takeover has ended
	b = w.open()
	check("takeover", &takeover)
	takeover.End()
	w.load(b) // yields what the takeover found
	reading.Begin()
	w.load(b)
	check("load", &reading)
	reading.End()
	for what, c := range map[string]*longwork.Counter{"takeover": &takeover, "load": &reading} {
		if a, is := c.Measure(); is {
			t.Errorf("the %s does not end: %+v", what, a)
		}
	}
}
