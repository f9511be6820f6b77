package firstsync

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// marking is a bus without markers. The function returns the error of the named request.
type marking func(what string) error

var _ Markers = marking(nil)

func (m marking) Completed(context.Context, schema.GroupResource) (bool, error) {
	return false, m("completed")
}
func (m marking) Started(context.Context, event.Resource) error       { return m("started") }
func (m marking) Finished(context.Context, event.Resource, int) error { return m("finished") }

func newSync(m marking) *Sync {
	none := func() int { return 0 }
	return New(Config{Markers: m, Len: none, Left: none, Logger: slog.New(slog.DiscardHandler)})
}

// TestMarkersAreTriedUntilTheyAreWritten verifies that each of the three marker requests is retried
// while the bus is down.
func TestMarkersAreTriedUntilTheyAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures = 20
		calls := map[string]int{}
		s := newSync(func(what string) error {
			if calls[what]++; calls[what] <= failures {
				return errors.New("bus down")
			}
			return nil
		})
		if !s.Begin(t.Context()) {
			t.Fatal("the first sync did not begin")
		}
		s.Finish(t.Context())
		// If the started marker fails, the completed marker is also read again.
		if calls["started"] != failures+1 || calls["finished"] != failures+1 || !s.IsDone() {
			t.Errorf("got %v, done %v; want %d of each and done", calls, s.IsDone(), failures+1)
		}
	})
}

// TestMarkersEndWithTheirContext verifies that marker requests end with their context while the bus
// is down.
func TestMarkersEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSync(func(what string) error {
			if what == "completed" {
				return nil
			}
			return errors.New("bus down")
		})
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan bool)
		go func() { began <- s.Begin(ctx) }()
		synctest.Wait()
		cancel()
		if <-began {
			t.Error("the first sync began without a marker")
		}
		s.Finish(ctx) // returns
		if s.IsDone() {
			t.Error("done without a marker")
		}
	})
}
