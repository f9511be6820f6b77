package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadMetadata(t *testing.T) {
	const text = `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","generateName":"web-","namespace":"a",` +
		`"uid":"u","resourceVersion":"42","labels":{"name":"other"}},"spec":{"containers":[{"name":"app"}]}}}`
	o, version, err := readMetadata([]byte(text))
	if want := (object{namespace: "a", name: "web-1"}); err != nil || o != want || version != 42 {
		t.Errorf("got %v, version %d and %v", o, version, err)
	}
	if _, _, err := readMetadata([]byte(`{"kind":"Status"}`)); err == nil {
		t.Error("no error for what has no version")
	}
}

// TestCompare: of two quick changes a subscriber may see the second alone, and a watch may
// show a change before it is answered.
func TestCompare(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	pod := object{"pods", "a", "web"}
	var watch, subscriber sightings
	watch.add(pod, state{2, at(9)})
	watch.add(pod, state{3, at(21)})
	subscriber.add(pod, state{1, at(1)})
	subscriber.add(pod, state{3, at(30)})
	l := compare([]change{{pod, state{2, at(10)}, 0}, {pod, state{3, at(20)}, 0}, {pod, state{4, at(40)}, 0}}, &watch, &subscriber)
	for name, tt := range map[string]struct{ got, want series }{
		"watch": {l.watch, series{-1, 1}}, "subscriber": {l.subscriber, series{20, 10}},
		"beyond": {l.beyond, series{21, 9}},
	} {
		if len(tt.got) != 2 || tt.got[0] != tt.want[0] || tt.got[1] != tt.want[1] {
			t.Errorf("%s: got %v, want %v", name, tt.got, tt.want)
		}
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		rate, err := pace(t.Context(), 20, 10*time.Second, func(int) error { calls.Add(1); return nil })
		if err != nil || rate < 19.5 || rate > 20.5 || calls.Load() < 199 || calls.Load() > 201 {
			t.Errorf("got %d calls, %.1f a second, and %v", calls.Load(), rate, err)
		}
	})
}

// TestPaceOfTheSlow: the rate is what can be done.
func TestPaceOfTheSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate, err := pace(t.Context(), 1000, 10*time.Second, func(int) error { time.Sleep(640 * time.Millisecond); return nil })
		if err != nil || rate < 90 || rate > 110 {
			t.Errorf("64 at once that take 0.64 s are %.1f a second, want 100 (%v)", rate, err)
		}
	})
}

func TestPaceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("refused")
		if _, err := pace(t.Context(), 10, time.Hour, func(int) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := pace(ctx, 10, time.Hour, func(int) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOf(t *testing.T) {
	start := time.Now()
	var all []change
	for i, resource := range []string{"pods", "configmaps", "pods", "pods"} {
		all = append(all, change{object{resource: resource}, state{uint64(i), start.Add(time.Duration(i) * time.Second)}, 0})
	}
	got := of(all, "pods", start.Add(time.Second), start.Add(3*time.Second))
	if len(got) != 1 || got[0].version != 2 {
		t.Errorf("got %v, want the third", got)
	}
}

func TestParseBenchmarks(t *testing.T) {
	const output = `goos: linux
BenchmarkPublish/zstd-2         	       5	2483932104 ns/op	      9350 bare-events/s	      7453 events/s	         0.7971 ratio
PASS
ok  	example.com/publish	32.501s
`
	found, err := parseBenchmarks([]byte(output))
	if err != nil || len(found) != 1 || found[0].name != "Publish/zstd" || found[0].metrics["ratio"] != 0.7971 || found[0].metrics["events/s"] != 7453 {
		t.Errorf("got %v (%v)", found, err)
	}
	if _, err := parseBenchmarks([]byte("BenchmarkX 1 many ns/op\n")); err == nil {
		t.Error("no error for what is no number")
	}
}
