package nats

import (
	"errors"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestPermit verifies that a writer without a permit publishes and purges nothing. This includes an
// object without events, for which compare-and-set would not reject the writer.
func TestPermit(t *testing.T) {
	url := natstest.Start(t).URL
	refusal := errors.New("another leads")
	var permitted error
	bus := connect(t, Options{Connection: Connection{URLs: []string{url}, Cluster: publishtest.Cluster, AckTimeout: 30 * time.Second}, Permit: func() error { return permitted }})
	waitReady(t, bus)
	first := publishtest.Object{Name: "web", Version: 1}.Message(t, 0)
	position := publishOK(t, bus, first)

	permitted = refusal
	for _, m := range []struct {
		name     string
		expected uint64
	}{{"web", position}, {"other", 0}} {
		_, err := publishNow(t, bus, publishtest.Object{Name: m.name, Version: 2}.Message(t, m.expected))
		if !errors.Is(err, refusal) || !errors.Is(err, publish.ErrNotSent) {
			t.Errorf("%s: got %v", m.name, err)
		}
	}
	if err := bus.Purge(t.Context(), first.Key, position); !errors.Is(err, refusal) {
		t.Errorf("purge: got %v", err)
	}
	if got := eventReader(t, url)(t, first.Key); len(got) != 1 {
		t.Errorf("the stream has %v, want the first only", got)
	}
	permitted = nil
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 2}.Message(t, position))
}
