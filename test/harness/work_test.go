package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serving returns a forwarder whose metrics are the given texts, one text for each request.
func serving(t *testing.T, set map[string]string, texts ...string) *Forwarder {
	t.Helper()
	var served atomic.Int32
	return New(Options{Dir: t.TempDir(), Set: set, Address: answering(t, func() string {
		return texts[min(int(served.Add(1)), len(texts))-1]
	})})
}

// answering starts a server that responds with the result of text, and returns the server's address.
func answering(t *testing.T, text func() string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, text())
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestWork(t *testing.T) {
	started := float64(time.Now().Add(-time.Hour).Unix())
	var answered atomic.Int64
	text := fmt.Sprintf(`# HELP kuberelay_decisions_total Decisions.
kuberelay_decisions_total{reason="gone"} 2
kuberelay_decisions_total{reason="unchanged"} 3
kuberelay_nats_reads_total 7
kuberelay_nats_publishes_total{result="acknowledged"} 4
kuberelay_nats_publishes_total{result="timeout"} 1
rest_client_requests_total{code="200",method="GET"} 11
process_cpu_seconds_total 1.5
process_start_time_seconds %g
kuberelay_informer_watch_events_total{resource="pods"} 13
kuberelay_informer_objects{resource="pods"} 17
`, started)
	f := New(Options{Dir: t.TempDir(), Address: answering(t, func() string { answered.Store(time.Now().UnixNano()); return text })})
	got, err := f.Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.up < 59*time.Minute || got.up > 61*time.Minute {
		t.Errorf("it has been up for %s", got.up)
	}
	if got.at.UnixNano() < answered.Load() {
		t.Error("the work includes work after its time")
	}
	got.at, got.up = time.Time{}, 0
	if want := (Work{Decisions: 5, BusReads: 7, Publishes: 5, APIRequests: 11, CPU: 1.5, Changes: 13, Objects: 17, leads: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWorkIsBounded(t *testing.T) {
	everySecond := map[string]string{"RESYNC_PERIOD": "1s", "CHECKPOINT_REFRESH": "1s"}
	electing := map[string]string{"LEADER_ELECTION": "true", "LEASE_RETRY_PERIOD": "300ms"}
	idle := Work{Decisions: 100, BusReads: 100, Publishes: 100, APIRequests: 100, CPU: 100, Changes: 50, Objects: 1000, up: time.Minute}
	for _, test := range []struct {
		name string
		set  map[string]string
		then func(*Work)
		want string // the kind of work that exceeds its bound, "" for none
	}{
		{name: "nothing", then: func(*Work) {}},
		{name: "what an idle forwarder does", then: func(w *Work) { w.BusReads++; w.APIRequests += 20; w.CPU += 0.1 }},
		{name: "decisions", then: func(w *Work) { w.Decisions += 100 }, want: "decisions"},
		{name: "bus reads", then: func(w *Work) { w.BusReads += 20 }, want: "bus reads"},
		{name: "publishes", then: func(w *Work) { w.Publishes += 20 }, want: "publishes"},
		{name: "API requests", then: func(w *Work) { w.APIRequests += 100 }, want: "API requests"},
		{name: "a lease that is read", set: electing, then: func(w *Work) { w.APIRequests += 180 }},
		{name: "a lease that is read all the time", set: electing, then: func(w *Work) { w.APIRequests += 220 }, want: "API requests"},
		{name: "CPU", then: func(w *Work) { w.CPU += 5 }, want: "CPU seconds"},
		{name: "decisions of changes", then: func(w *Work) { w.Decisions += 100; w.Changes += 50 }},
		{name: "more decisions than changes cost", then: func(w *Work) { w.Decisions += 1000; w.Changes += 50 }, want: "decisions"},
		{name: "a resync", set: map[string]string{"RESYNC_PERIOD": "30s"}, then: func(w *Work) { w.Decisions += 1000 }},
		{name: "a resync that is not due", set: map[string]string{"RESYNC_PERIOD": "2m"}, then: func(w *Work) { w.Decisions += 1000 }, want: "decisions"},
		{name: "more than a resync", set: map[string]string{"RESYNC_PERIOD": "30s"}, then: func(w *Work) { w.Decisions += 1100 }, want: "decisions"},
		{name: "a resync with objects that the filter leaves out", set: map[string]string{"RESYNC_PERIOD": "30s", "FILTER": "false"}, then: func(w *Work) { w.Decisions += 2000 }},
		{name: "more than these and the selected ones", set: map[string]string{"RESYNC_PERIOD": "30s", "FILTER": "false"}, then: func(w *Work) { w.Decisions += 2200 }, want: "decisions"},
		{name: "reads of a resync", set: map[string]string{"RESYNC_PERIOD": "1s"}, then: func(w *Work) { w.BusReads += 20 }, want: "bus reads"},
		{name: "a resync and a refresh every second", set: everySecond, then: func(w *Work) { w.Decisions += 22000; w.BusReads += 110; w.CPU += 20 }},
		{name: "more than these", set: everySecond, then: func(w *Work) { w.Decisions += 22100; w.BusReads += 110; w.CPU += 20 }, want: "decisions"},
		{name: "a refresh", set: map[string]string{"CHECKPOINT_REFRESH": "30s"}, then: func(w *Work) { w.Decisions += 1000; w.BusReads += 5 }},
		{name: "a refresh that reads what is not selected any more", set: everySecond, then: func(w *Work) { w.outside = 50; w.APIRequests += 600 }},
		{name: "reads of more than that", set: everySecond, then: func(w *Work) { w.outside = 50; w.APIRequests += 620 }, want: "API requests"},
		{name: "reads of what is not selected any more without a refresh", then: func(w *Work) { w.outside = 50; w.APIRequests += 150 }, want: "API requests"},
		{name: "a counter that began anew", then: func(w *Work) { w.Decisions = 10 }},
		{name: "a loop in a new term", then: func(w *Work) { w.Decisions = 90 }, want: "decisions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := New(Options{Set: test.set})
			begin, end := idle, idle
			begin.at = time.Unix(1000, 0)
			end.at, end.up = begin.at.Add(10*time.Second), begin.up+10*time.Second
			test.then(&end)
			err := f.check(begin, end)
			var work *WorkError
			if got := errors.As(err, &work); got != (test.want != "") {
				t.Fatalf("got %v, want too much of %q", err, test.want)
			}
			if work == nil {
				return
			}
			for _, l := range work.Lines {
				if got := l.Done > l.Bound; got != (l.Kind == test.want) {
					t.Errorf("%s: %v done, the bound is %v", l.Kind, l.Done, l.Bound)
				}
			}
			if !strings.Contains(err.Error(), test.want+"  ") || strings.Count(err.Error(), "too much") != 1 {
				t.Errorf("the table does not say it:\n%v", err)
			}
		})
	}
}

func TestRestErrors(t *testing.T) {
	f := New(Options{Dir: t.TempDir(), Address: "127.0.0.1:1"})
	if err := f.Rest(t.Context(), 0); err == nil {
		t.Error("Rest of a process that does not respond: got no error")
	}
	var restarted *Forwarder
	restarted = New(Options{Dir: t.TempDir(), Address: answering(t, func() string {
		restarted.mu.Lock()
		defer restarted.mu.Unlock()
		restarted.starts++
		return ""
	})})
	if err := restarted.Rest(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("got %v of a process that was restarted", err)
	}
	clock := without(everyMetric, "process_start_time") + "process_start_time_seconds %d\n"
	if err := serving(t, nil, fmt.Sprintf(clock, 1000000000), fmt.Sprintf(clock, 1000000001)).Rest(t.Context(), 0); err != nil {
		t.Errorf("got %v after the machine's clock was set", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serving(t, nil, "").Rest(ctx, time.Hour); err == nil {
		t.Error("Rest with a canceled context: got no error")
	}
}

// everyMetric contains the metrics of a leader.
const everyMetric = `kuberelay_leader 1
kuberelay_decisions_total{reason="unchanged"} 3
kuberelay_nats_reads_total 7
kuberelay_nats_publishes_total{result="acknowledged"} 4
rest_client_requests_total{code="200",method="GET"} 11
process_cpu_seconds_total 1.5
process_start_time_seconds 1.7e9
kuberelay_informer_objects{resource="pods"} 17
`

// without removes the lines that begin with name.
func without(metrics, name string) string {
	return regexp.MustCompile(`(?m)^`+name+`.*\n`).ReplaceAllString(metrics, "")
}

func TestRestNeedsEveryMetric(t *testing.T) {
	standby := strings.Replace(everyMetric, "kuberelay_leader 1", "kuberelay_leader 0", 1)
	for _, test := range []struct {
		name, metrics string
		set           map[string]string
		begin         string // the metrics at the beginning, if they differ
		missing       string
	}{
		{name: "all", metrics: everyMetric},
		{name: "no election", metrics: without(everyMetric, "kuberelay_leader")},
		{name: "decisions", metrics: without(everyMetric, "kuberelay_decisions"), missing: "kuberelay_decisions_total"},
		{name: "reads", metrics: without(everyMetric, "kuberelay_nats_reads"), missing: "kuberelay_nats_reads_total"},
		{name: "publishes", metrics: without(everyMetric, "kuberelay_nats_publishes"), missing: "kuberelay_nats_publishes_total"},
		{name: "requests", metrics: without(everyMetric, "rest_client"), missing: "rest_client_requests_total"},
		{name: "CPU", metrics: without(everyMetric, "process_cpu"), missing: "process_cpu_seconds_total"},
		{name: "those of another bus", metrics: everyMetric, set: map[string]string{"SINK": "kafka"}, missing: "kuberelay_kafka_reads_total, kuberelay_kafka_publishes_total"},
		{name: "no decision without an object", metrics: without(without(everyMetric, "kuberelay_decisions"), "kuberelay_informer_objects")},
		{name: "standby", metrics: without(without(standby, "kuberelay_nats"), "kuberelay_decisions")},
		{name: "requests of a standby", metrics: without(standby, "rest_client"), missing: "rest_client_requests_total"},
		{name: "a new leader", begin: standby, metrics: without(everyMetric, "kuberelay_nats")},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := serving(t, test.set, cmp.Or(test.begin, test.metrics), test.metrics).Rest(t.Context(), 0)
			got := ""
			if err != nil {
				_, got, _ = strings.Cut(err.Error(), "it does not export ")
			}
			if got != test.missing || (err != nil) != (test.missing != "") {
				t.Errorf("got %v, want %q missing", err, test.missing)
			}
		})
	}
}
