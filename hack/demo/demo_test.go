package main

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// recorded is a Recorder with these messages.
type recorded struct {
	harness.Recorder
	all []harness.Received
}

func (r recorded) All() ([]harness.Received, bool, error) { return r.all, false, nil }

// receivedFrom returns what a recorder makes of a Kafka record.
func receivedFrom(r *recordbatch.Record) harness.Received {
	received := harness.Received{Subject: string(r.Key), Body: r.Value, Data: r.Value, Attributes: map[string]string{}}
	for _, h := range r.Headers {
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			received.Attributes[name] = string(h.Value)
		}
	}
	return received
}

// TestKafkaEvents verifies that the demo sees the snapshot markers on Kafka, which have no value, and skips
// tombstones and consistency points, which have none either. It once skipped all three, and waited for the
// markers of its first act until it failed.
func TestKafkaEvents(t *testing.T) {
	var all []harness.Received
	for _, typed := range publishtest.EveryType(t) {
		if !typed.Message.Marker {
			continue
		}
		r, err := binding.EncodeControl(typed.Message)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, receivedFrom(&r))
	}
	all = append(all, receivedFrom(binding.Tombstone(publishtest.Object{Name: "web", Version: 1, Deleted: true}.Message(t, 0))))
	events, err := (&stage{recorder: recorded{all: all}}).events()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.kind)
	}
	if want := []string{"snapshot started", "snapshot completed", "cluster claimed", "writer started"}; !slices.Equal(kinds, want) {
		t.Errorf("the demo sees %q, want %q", kinds, want)
	}
	if err := missing([]want{snapshot("deployments.apps")}, events); err != nil {
		t.Errorf("the demo does not see: %v", err)
	}
}

// TestDemo_Slow runs the demo on each bus.
func TestDemo_Slow(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "forwarder")
	building, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := harness.Build(building, bin); err != nil {
		t.Fatal(err)
	}
	for _, sink := range []string{"nats", "kafka"} {
		t.Run(sink, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), &console{w: &out}, bin, sink, true); err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}
