package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var shared controlplanetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// TestFill verifies that a pod has 14 KB with the managedFields that its managers write in a real
// cluster.
func TestFill(t *testing.T) {
	config := shared.ControlPlane(t).Config()
	const n = 120
	if err := fill(t.Context(), config, 0, n, io.Discard); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(shared.ControlPlane(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != n {
		t.Fatalf("got %d pods and error %v, want %d pods", len(list.Items), err, n)
	}
	managers, bytes := map[string]int{}, 0
	for _, p := range list.Items {
		for _, entry := range p.GetManagedFields() {
			managers[entry.Manager+" "+entry.Subresource]++
		}
		text, err := p.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(text)
	}
	if managers["kube-controller-manager "] != n || managers["kubelet status"] != n || managers["kubectl-label "] != n/10 {
		t.Errorf("got the managers %v", managers)
	}
	if size := bytes / n; size < 12_600 || size > 15_400 {
		t.Errorf("a pod has %d bytes, want 14,000 and at most a tenth more or less", size)
	}
}

func TestReadMetadata(t *testing.T) {
	const text = `{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"web-1","generateName":"web-","namespace":"a",` +
		`"resourceVersion":"42","labels":{"name":"other"}},"spec":{"containers":[{"name":"app"}]}}}`
	o, version, err := readMetadata([]byte(text))
	if want := (object{namespace: "a", name: "web-1"}); err != nil || o != want || version != 42 {
		t.Errorf("got %v, version %d and error %v", o, version, err)
	}
	if _, _, err := readMetadata([]byte(`{"kind":"Status"}`)); err == nil {
		t.Error("no error without a version")
	}
}

// TestSightings verifies the latencies of changes. A subscriber may see only the second of two quick
// changes, and a watch may show a change before the API server responds to the request.
func TestSightings(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	pod := object{"pods", "a", "web"}
	var watch, subscriber sightings
	for _, st := range []state{{2, at(9)}, {3, at(21)}} {
		watch.add(pod, st)
	}
	for _, st := range []state{{1, at(1)}, {3, at(30)}} {
		subscriber.add(pod, st)
	}
	changes := []change{{pod, state{2, at(10)}}, {pod, state{3, at(20)}}, {pod, state{4, at(40)}}}
	for name, tt := range map[string]struct{ got, want series }{
		"watch": {watch.latencies(changes), series{-1, 1}}, "subscriber": {subscriber.latencies(changes), series{20, 10}},
		"beyond": {subscriber.beyond(&watch, changes), series{21, 9}},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, tt.got, tt.want)
		}
	}
	if c := (&changer{all: changes}); len(c.of("pods", at(20), at(40))) != 1 || len(c.of("configmaps", at(0), at(99))) != 0 {
		t.Error("of returns changes of another time or resource")
	}
}

// TestPace verifies that slow calls limit the rate, and that a failed call ends pace.
func TestPace(t *testing.T) {
	failure := errors.New("refused")
	for name, tt := range map[string]struct {
		takes time.Duration
		err   error
		want  int64 // number of calls
	}{"fast": {0, nil, 200}, "slow": {6400 * time.Millisecond, nil, 129}, "failed": {0, failure, 1}} {
		synctest.Test(t, func(t *testing.T) {
			stop, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var calls atomic.Int64
			err := pace(t.Context(), stop, 20, func(context.Context, int) error {
				calls.Add(1)
				time.Sleep(tt.takes)
				return tt.err
			})
			if got := calls.Load(); !errors.Is(err, tt.err) || got < tt.want-1 || got > tt.want+1 {
				t.Errorf("%s: got %d calls and error %v, want %d calls", name, got, err, tt.want)
			}
		})
	}
}

func TestSeries(t *testing.T) {
	for _, tt := range []struct {
		s                      series
		median, p50, p99, p100 float64
		show                   string
	}{
		{nil, 0, 0, 0, 0, "–"},
		{series{1.5}, 1.5, 1.5, 1.5, 1.5, "1.5"},
		{series{4, 1, 3, 2}, 2.5, 2, 4, 4, "2.5 (1.0–4.0)"},
	} {
		if got := []float64{tt.s.median(), tt.s.percentile(50), tt.s.percentile(99), tt.s.percentile(100)}; !slices.Equal(got, []float64{tt.median, tt.p50, tt.p99, tt.p100}) {
			t.Errorf("%v: got %v", tt.s, got)
		}
		if got := tt.s.show("%.1f"); got != tt.show {
			t.Errorf("got %q, want %q", got, tt.show)
		}
	}
	if got, want := (series{6, 8, 1}).per(series{2, 0}), (series{3}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReport verifies that a promise without a measurement isn't met.
func TestReport(t *testing.T) {
	var r report
	r.add("T", "", "µs").add("floor → x", "7")
	r.atMost("a", series{1}, 1, "%.0f")
	r.atMost("b", series{9, 1, 9}, 1, "%.0f")
	r.atMost("c", nil, 1, "%.0f")
	r.promise("d", series{-1}, 0, 1, "%.0f")
	r.addLatency(20_000, &sightings{}, &sightings{}, nil, 0)
	r.addLive(20_000, &live{})
	r.addFrozen(20_000, &subscriber{}, nil, nil, time.Time{})
	text := r.String()
	if met := strings.Count(text, "| met "); met != 1 || r.broken != strings.Count(text, "NOT MET") || r.broken < 8 {
		t.Errorf("%d are met and %d are not:\n%s", met, r.broken, text)
	}
	if want := "|           | µs |\n|-----------|----|\n| floor → x | 7  |\n"; !strings.Contains(text, want) {
		t.Errorf("got\n%swant a table\n%s", text, want)
	}
}

func TestSum(t *testing.T) {
	const m = metrics(`# TYPE e counter
e{resource="pods",type="created"} 3
e{resource="pods",type="snapshot"} 4
e{resource="configmaps",type="snapshot"} 8
ex 1.5e+06
`)
	if got := []float64{m.sum("e", "pods"), m.sum("e", ""), m.sum("ex", ""), m.sum("none", "")}; !slices.Equal(got, []float64{7, 15, 1_500_000, 0}) {
		t.Errorf("got %v", got)
	}
}

func TestSettings(t *testing.T) {
	read := func(vars map[string]string) (settings, error) {
		return readSettings(func(name string) string { return vars[name] })
	}
	s, err := read(nil)
	if err != nil || !slices.Equal(s.pods, []int{20_000, 100_000}) || len(s.benchmarks) != 6 || len(s.contenders) != 7 {
		t.Errorf("by default: got %+v and error %v", s, err)
	}
	s, err = read(map[string]string{"BENCH": "sync", "PODS": "5000 200", "ROUNDS": "2", "CONTENDERS": "nats"})
	if err != nil || !slices.Equal(s.pods, []int{200, 5000}) || s.rounds != 2 || !slices.Equal(s.contenders, []string{"nats"}) {
		t.Errorf("got %+v and error %v", s, err)
	}
	for _, wrong := range []map[string]string{{"BENCH": "sink"}, {"PODS": "many"}, {"PODS": "7"}, {"ROUNDS": "0"}, {"CONTENDERS": "flor"}} {
		if _, err := read(wrong); err == nil {
			t.Errorf("no error for %v", wrong)
		}
	}
}

func TestProcessUse(t *testing.T) {
	const size = 1 << 20
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := processUse(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	after, err := processUse(os.Getpid())
	if read := after.read - before.read; err != nil || read < size || read > 2*size || after.memory < size || after.memory > 1<<34 || after.cpu < before.cpu {
		t.Errorf("before %+v, after %+v (%v), want %d bytes read", before, after, err, size)
	}
}
