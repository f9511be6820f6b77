package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
)

func TestResultOf(t *testing.T) {
	cause := errors.New("cause")
	for _, test := range []struct {
		err  error
		want Result
	}{
		{nil, ResultStored},
		{cause, ResultError},
		{&ConflictError{}, ResultConflict},
		{ErrTooLarge, ResultTooLarge},
		{fmt.Errorf("%w: %w", ErrTooLarge, cause), ResultTooLarge},
		{Failure(ResultTimeout, cause), ResultTimeout},
		{Failure("own", cause), "own"},
		{fmt.Errorf("%w: %w", ErrNotSent, Failure(ResultNotReady, cause)), ResultNotReady},
		{Failure(ResultBusy, ErrTooLarge), ResultTooLarge}, // an error of this package takes precedence
	} {
		if got := ResultOf(test.err); got != test.want {
			t.Errorf("%v is %s, want %s", test.err, got, test.want)
		}
	}
	if err := Failure(ResultBusy, cause); !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("the failure is %v, want %v with it in its chain", err, cause)
	}
}

func TestIsSame(t *testing.T) {
	m := &event.Message{ID: "u.1", Data: []byte("data"), Attributes: []event.Attribute{{Name: "id", Value: "u.1"}, {Name: "sequence", Value: "0000.1"}}}
	deleted := &event.Message{ID: "u.deleted", Data: []byte("data"), Attributes: []event.Attribute{{Name: "sequence", Value: "0000.2"}}, Acked: event.Acked{Deleted: true}}
	for _, test := range []struct {
		m                  *event.Message
		id, sequence, data string
		want               bool
	}{
		{m, "u.1", "0000.1", "data", true},
		{m, "u.1", "0001.1", "data", false},
		{m, "u.2", "0000.1", "data", false},
		{m, "u.1", "0000.1", "forged", false},
		{m, "", "", "", false},
		{deleted, "u.deleted", "0000.3", "data", true},
		{deleted, "u.2", "0000.2", "data", false},
		{deleted, "u.deleted", "0000.2", "forged", false},
	} {
		stored := &event.Message{ID: test.id, Data: []byte(test.data), Attributes: []event.Attribute{{Name: "sequence", Value: test.sequence}}}
		if got := IsSame(test.m, stored); got != test.want {
			t.Errorf("%s is the same as %v: %t, want %t", test.m.ID, test, got, test.want)
		}
	}
}

// TestMetrics verifies the metric names, which are an interface for users, and that every result has
// a counter before its first use.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry, "bus", "own")
	m.Count(ResultStored)
	m.Count(ResultStored)
	m.Count("own")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	counts := map[Result]float64{}
	for _, f := range families {
		names = append(names, f.GetName())
		if f.GetName() == "kuberelay_bus_publishes_total" {
			for _, m := range f.GetMetric() {
				counts[Result(m.GetLabel()[0].GetValue())] = m.GetCounter().GetValue()
			}
		}
	}
	if want := []string{"kuberelay_bus_ack_duration_seconds", "kuberelay_bus_in_flight", "kuberelay_bus_publishes_total"}; !slices.Equal(names, want) {
		t.Errorf("the metrics are %q, want %q", names, want)
	}
	for _, r := range append(commonResults(), "own") {
		want := map[Result]float64{ResultStored: 2, "own": 1}[r]
		if got, ok := counts[r]; !ok || got != want {
			t.Errorf("%s is counted %v times (%t), want %v", r, got, ok, want)
		}
	}
	NewMetrics(nil, "bus").Count(ResultStored) // registered nowhere
}

// TestConditionChangesBeforeTheWait verifies that Await notices a change between its check and its wait.
func TestConditionChangesBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Condition
		calls := 0
		if err := c.Await(t.Context(), func() bool {
			calls++
			return calls > 1 // changed by another goroutine, without a goroutine to wake
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pending
		if err := p.Wait(t.Context()); err != nil {
			t.Errorf("with nothing pending: %v", err)
		}
		p.Begin()
		p.Begin()
		ctx, cancel := context.WithCancel(t.Context())
		ended, waited := make(chan error, 1), make(chan error, 2)
		go func() { ended <- p.Wait(ctx) }()
		for range 2 {
			go func() { waited <- p.Wait(t.Context()) }()
		}
		p.End()
		synctest.Wait()
		if len(waited) != 0 {
			t.Error("waited for one of two only")
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		p.End()
		for range 2 {
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}
		if err := p.Wait(t.Context()); err != nil {
			t.Errorf("with nothing pending again: %v", err)
		}
	})
}
