package main

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestSeries(t *testing.T) {
	tests := []struct {
		name                   string
		s                      series
		median, p50, p99, p100 float64
	}{
		{"none", nil, 0, 0, 0, 0},
		{"one", series{4}, 4, 4, 4, 4},
		{"odd", series{9, 1, 5}, 5, 5, 9, 9},
		{"even", series{4, 1, 3, 2}, 2.5, 2, 4, 4},
		{"hundred", hundred(), 50.5, 50, 99, 100},
	}
	for _, tt := range tests {
		before := slices.Clone(tt.s)
		for what, got := range map[string][2]float64{
			"median": {tt.s.median(), tt.median}, "p50": {tt.s.percentile(50), tt.p50}, "p99": {tt.s.percentile(99), tt.p99}, "p100": {tt.s.percentile(100), tt.p100},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: %s is %v, want %v", tt.name, what, got[0], got[1])
			}
		}
		if !slices.Equal(before, tt.s) {
			t.Errorf("%s: it was changed", tt.name)
		}
	}
}

func hundred() (s series) {
	for i := range 100 {
		s = append(s, float64(100-i))
	}
	return s
}

func TestPer(t *testing.T) {
	if got, want := (series{6, 8, 1}).per(series{2, 0}), (series{3}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestShow(t *testing.T) {
	for want, s := range map[string]series{"–": nil, "1.5": {1.5}, "2.0 (1.0–4.0)": {4, 1, 2}} {
		if got := s.show("%.1f"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := table{head: []string{"", "µs"}}
	tab.add("floor", "7")
	tab.add("forwarder → NATS")
	want := `
|                  | µs |
|------------------|----|
| floor            | 7  |
| forwarder → NATS |    |
`
	if got := tab.String(); got != want[1:] {
		t.Errorf("got\n%swant%s", got, want)
	}
}

// TestPromises: what was not measured is not kept.
func TestPromises(t *testing.T) {
	var r report
	r.atMost("a", nil, 1, "%.0f")
	r.atMost("b", series{1}, 1, "%.0f")
	r.atMost("c", series{9, 1, 9}, 1, "%.0f")
	r.atLeast("d", series{5}, 5, "%.0f")
	r.atLeast("e", nil, 0, "%.0f")
	var got []bool
	for _, p := range r.promises {
		got = append(got, p.kept)
	}
	if want := []bool{false, true, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("kept are %v, want %v", got, want)
	}
	if text := r.String(); strings.Count(text, "NOT MET") != 3 {
		t.Errorf("the report is\n%s", text)
	}
}

// TestReadInitialEvents: the bookmark is found wherever a read cuts it.
func TestReadInitialEvents(t *testing.T) {
	text := strings.Repeat("x", 70_000) + string(endOfInitialEvents)
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "with its end": iotest.DataErrReader(strings.NewReader(text)),
	} {
		if n, err := readInitialEvents(r); err != nil || n != int64(len(text)) {
			t.Errorf("%s: read %d bytes and %v, want %d", name, n, err, len(text))
		}
	}
	if _, err := readInitialEvents(strings.NewReader(text[:len(text)-1])); err == nil {
		t.Error("found a bookmark that is cut off")
	}
}

func TestProc(t *testing.T) {
	stat := []byte("42 (a b) c) S 1 42 42 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 9 0 1 2 3")
	if got, err := parseCPU(stat); err != nil || got != 1750*time.Millisecond {
		t.Errorf("CPU is %s and %v, want 1.75s", got, err)
	}
	for _, bad := range []string{"", "42 (a) S 1 2"} {
		if _, err := parseCPU([]byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
	this, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self := process{cmd: &exec.Cmd{Process: this}}
	if u, err := self.usage(); err != nil || u.peak < 1<<20 {
		t.Errorf("this process has used %v and %v", u, err)
	}
	if got, err := parseKiB([]byte("VmPeak:\t 1 kB\nVmHWM:\t   2048 kB\n"), "VmHWM:"); err != nil || got != 2<<20 {
		t.Errorf("got %d and %v, want 2 MiB", got, err)
	}
	if _, err := parseKiB(nil, "VmHWM:"); err == nil {
		t.Error("no error for a line that is not there")
	}
}

func TestMetrics(t *testing.T) {
	text := []byte(`# TYPE kuberelay_events_published_total counter
kuberelay_events_published_total{resource="pods",type="created"} 3
kuberelay_events_published_total{resource="pods",type="snapshot"} 4
kuberelay_events_published_total{resource="configmaps",type="snapshot"} 8
# TYPE go_memstats_heap_alloc_bytes gauge
go_memstats_heap_alloc_bytes 1.5e+06
`)
	m, err := parseMetrics(text)
	if err != nil {
		t.Fatal(err)
	}
	const name = "kuberelay_events_published_total"
	if got := []float64{m.sum(name, "pods"), m.sum(name, ""), m.sum("none", "")}; !slices.Equal(got, []float64{7, 15, 0}) {
		t.Errorf("sums are %v", got)
	}
	if got := m.memory().Live; got != 1_500_000 {
		t.Errorf("live are %d bytes", got)
	}
}

func TestSettings(t *testing.T) {
	env := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	s, err := readSettings(env(nil))
	if err != nil || !slices.Equal(s.pods, []int{20_000, 100_000}) || s.roundsOf(20_000) != 3 || s.roundsOf(100_000) != 1 || !s.wants("live") {
		t.Errorf("by default it does %+v (%v)", s, err)
	}
	s, err = readSettings(env(map[string]string{"BENCH": "sync", "PODS": "5000 200", "ROUNDS": "2", "CONTENDERS": "nats"}))
	if err != nil || !s.has("floor") || !s.has("nats") || s.has("kafka") || !slices.Equal(s.pods, []int{200, 5000}) || s.roundsOf(100_000) != 2 || s.wants("live") {
		t.Errorf("got %+v (%v)", s, err)
	}
	for _, wrong := range []map[string]string{{"BENCH": "sink"}, {"PODS": "many"}, {"PODS": "7"}, {"ROUNDS": "0"}, {"CONTENDERS": "flor"}} {
		if _, err := readSettings(env(wrong)); err == nil {
			t.Errorf("no error for %v", wrong)
		}
	}
}

// TestNothingMeasured: is nothing kept.
func TestNothingMeasured(t *testing.T) {
	var r report
	r.addLatency(20_000, calm{}, nil)
	r.addLive(lived{pods: 20_000})
	if len(r.promises) != 4 {
		t.Errorf("%d promises, want one of latency and three of live changes", len(r.promises))
	}
	for _, p := range r.promises {
		if p.kept {
			t.Errorf("kept, without a measurement: %s", p.text)
		}
	}
}
