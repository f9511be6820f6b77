package forward

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kuberelay/kuberelay/internal/event"
)

func TestWroteAt(t *testing.T) {
	written := func(at uint32) *event.Object { return &event.Object{Written: at} }
	known := event.Change{Type: event.Updated, Cause: event.CauseWatch, Object: written(100), Before: written(90)}
	for name, of := range map[string]struct {
		change func(*event.Change)
		ok     bool
	}{
		"updated":                    {func(*event.Change) {}, true},
		"created":                    {func(c *event.Change) { c.Type, c.Before = event.Created, nil }, true},
		"snapshot":                   {func(c *event.Change) { c.Type, c.Before = event.Snapshot, nil }, false},
		"deleted":                    {func(c *event.Change) { c.Type = event.Deleted }, false},
		"not by a watch":             {func(c *event.Change) { c.Cause = event.CauseReconcile }, false},
		"unknown":                    {func(c *event.Change) { c.Object = written(0) }, false},
		"of the second before":       {func(c *event.Change) { c.Before = written(100) }, false},
		"state before unknown":       {func(c *event.Change) { c.Before = nil }, false},
		"time before unknown":        {func(c *event.Change) { c.Before = written(0) }, false},
		"the same state, once more":  {func(c *event.Change) { c.After = 7 }, false},
		"a forged time in the state": {func(c *event.Change) { c.Before = written(4_000_000_000) }, false},
	} {
		c := known
		of.change(&c)
		at, ok := wroteAt(c)
		if ok != of.ok || ok && !at.Equal(time.Unix(100, 0)) {
			t.Errorf("%s: %v, %t, want %t", name, at, ok, of.ok)
		}
	}
}

// TestAcknowledgedMetrics verifies that an acknowledgement counts the bytes of the data and the time
// since the write at the API server. The time is 0 if the API server's clock is ahead.
func TestAcknowledgedMetrics(t *testing.T) {
	o := object("A", "11")
	o.Written = 1_000
	b := &bench{view: view(o), answer: []answer{{position: 1}, {position: 2}}}
	registry := prometheus.NewRegistry()
	f := New(b.config(registry))
	f.Now = func() time.Time { return time.Unix(1_007, 0) }
	if _, err := syncOnce(t, f); err != nil {
		t.Fatal(err)
	}
	size := float64(len(b.sent[0].Data))
	check := func(count uint64, sum, bytes float64) {
		t.Helper()
		if h := gathered(t, registry, "kuberelay_end_to_end_lag_seconds").GetHistogram(); h.GetSampleCount() != count || h.GetSampleSum() != sum {
			t.Errorf("the lag is %v", h)
		}
		if got := gathered(t, registry, "kuberelay_published_bytes_total").GetCounter().GetValue(); got != bytes || bytes == 0 {
			t.Errorf("%v bytes, want %v", got, bytes)
		}
	}
	check(1, 7, size)
	f.Now = func() time.Time { return time.Unix(999, 0) }
	b.acked = event.Acked{}
	if _, err := syncOnce(t, f); err != nil {
		t.Fatal(err)
	}
	check(2, 7, 2*size)
}

// gathered returns the only metric with the given name.
func gathered(t *testing.T, r prometheus.Gatherer, name string) *dto.Metric {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name && len(family.GetMetric()) == 1 {
			return family.GetMetric()[0]
		}
	}
	t.Fatalf("want exactly one metric %s", name)
	return nil
}
