package forward

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
)

func TestOutcome(t *testing.T) {
	clock := time.Unix(1000, 0)
	start := clock
	b := &bench{view: view(object("a", "1"))}
	f := b.forwarder()
	f.Now = func() time.Time { return clock }
	gr := key.GroupResource()
	step := func(what string, a answer, want Outcome) {
		t.Helper()
		b.answer = append(b.answer, a)
		_, _ = syncOnce(t, f)
		if got := f.Outcome(gr); !errors.Is(got.Err, want.Err) || (got.Err == nil) != (want.Err == nil) || !got.Since.Equal(want.Since) || !got.Published.Equal(want.Published) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
		clock = clock.Add(time.Second)
	}
	if got := f.Outcome(gr); got != (Outcome{}) {
		t.Errorf("before a publish: %+v", got)
	}
	refused := errors.New("refused")
	step("refused", answer{err: refused}, Outcome{Err: refused, Since: start})
	step("not sent", answer{err: publish.ErrNotSent}, Outcome{Err: publish.ErrNotSent, Since: start})
	step("stored", answer{position: 1}, Outcome{Published: start.Add(2 * time.Second)})

	b.view = view(object("a", "2"))
	step("refused again", answer{err: refused}, Outcome{Err: refused, Since: start.Add(3 * time.Second), Published: start.Add(2 * time.Second)})
	f.outcomes.succeeded(event.Key{Resource: "configmaps", Namespace: "default", Name: "other"}, 1, clock.Add(-3*time.Millisecond), clock)
	if f.Outcome(gr).Err == nil {
		t.Error("the publish of another object has resolved the error")
	}
	published := clock
	b.view, b.acked = view(nil), event.Acked{}
	_, _ = syncOnce(t, f)
	if got, want := f.Outcome(gr), (Outcome{Published: published, Lag: 3 * time.Millisecond}); got != want {
		t.Errorf("the object is gone: got %+v, want %+v", got, want)
	}
}

// TestFailures verifies that each key has its own error, that only a success of that key clears it,
// and that only the latest errors are kept.
func TestFailures(t *testing.T) {
	f, now, gr := (&bench{view: view(object("a", "1"))}).forwarder(), time.Unix(1000, 0), key.GroupResource()
	of := func(i int) event.Key {
		k := key
		k.Name = fmt.Sprint(i)
		return k
	}
	want := func(k event.Key, own bool, err error) {
		t.Helper()
		if d := f.Describe(k); d.Own != own || !errors.Is(d.Err, err) || (d.Err == nil) != (err == nil) {
			t.Errorf("%s: got %v, own is %v; want %v, %v", k.Name, d.Err, d.Own, err, own)
		}
	}
	first, second := errors.New("first"), errors.New("second")
	f.outcomes.failed(of(1), first, now)
	f.outcomes.failed(of(2), second, now.Add(time.Second))
	want(of(1), true, first)
	want(of(2), true, second)
	want(of(3), false, second)
	f.outcomes.of(gr).resolve(of(2))
	want(of(1), true, first)
	want(of(2), false, first)
	if got := f.Outcome(gr); got.Key != of(1) || !got.Since.Equal(now) {
		t.Errorf("got %+v", got)
	}
	for i := range maxFailures {
		f.outcomes.failed(of(i+2), second, now)
	}
	want(of(1), false, second)
	for i := range maxFailures {
		want(of(i+2), true, second)
		f.outcomes.of(gr).resolve(of(i + 2))
	}
	want(of(1), false, nil)
}

// TestOutcomeNamesNoID verifies that the error text of an outcome contains no event ID, and that the
// error still wraps the error of the bus.
func TestOutcomeNamesNoID(t *testing.T) {
	b := &bench{view: view(object("a", "1"))}
	f := b.forwarder()
	f.Publish = func(_ context.Context, m *event.Message, done func(uint64, error)) {
		done(0, fmt.Errorf("publish %s: %w", m.ID, publish.ErrNotSent))
	}
	_, _ = syncOnce(t, f)
	if got := f.Outcome(key.GroupResource()); got.Err == nil || got.Err.Error() != publish.ErrNotSent.Error() || !errors.Is(got.Err, publish.ErrNotSent) || got.Key != key {
		t.Errorf("got %+v", got)
	}
}

// TestOutcomeTruncated verifies that a state that is too large counts as one truncated state.
func TestOutcomeTruncated(t *testing.T) {
	b := &bench{view: view(object("a", "1")), answer: []answer{{err: publish.ErrTooLarge}}}
	f := b.forwarder()
	_, _ = syncOnce(t, f)
	if got := f.Outcome(key.GroupResource()); got.Truncated != 1 {
		t.Errorf("got %+v, want one truncated state", got)
	}
}

// TestDescribe verifies that Describe returns the pending decision, the error, and whether the error
// belongs to the key. Describe changes nothing.
func TestDescribe(t *testing.T) {
	b := &bench{view: view(object("a", "1"))}
	f := b.forwarder()
	if d := f.Describe(key); d.Reason != ledger.ReasonCreated || d.Acked != (event.Acked{}) || d.Err != nil {
		t.Errorf("before a publish: %+v", d)
	}
	refused := errors.New("refused")
	b.answer = append(b.answer, answer{err: refused})
	_, _ = syncOnce(t, f)
	if d := f.Describe(key); !errors.Is(d.Err, refused) || !d.Own || d.Since.IsZero() {
		t.Errorf("refused: %+v", d)
	}
	other := key
	other.Name = "other"
	if d := f.Describe(other); !errors.Is(d.Err, refused) || d.Own {
		t.Errorf("another object: %+v", d)
	}
	b.answer = append(b.answer, answer{position: 7})
	_, _ = syncOnce(t, f)
	if d := f.Describe(key); d.Reason != ledger.ReasonUnchanged || d.Acked.Position != 7 || d.Err != nil {
		t.Errorf("stored: %+v", d)
	}
	b.acked.Foreign = true
	if d := f.Describe(key); d.Reason != ledger.ReasonForeign {
		t.Errorf("foreign: %+v", d)
	}
}

// TestPublished verifies that Published is called only for acknowledged events.
func TestPublished(t *testing.T) {
	b := &bench{view: view(object("a", "11")), acked: live("a", "10"), answer: []answer{{err: publish.ErrNotSent}, {position: 8}}}
	f := b.forwarder()
	clock := time.Unix(1000, 0)
	f.Now = func() time.Time { return clock }
	type publication struct {
		key                    event.Key
		of                     event.Type
		version                string
		observed, acknowledged time.Time
	}
	var told []publication
	f.Published = func(key event.Key, of event.Type, version string, observed, acknowledged time.Time) {
		told = append(told, publication{key, of, version, observed, acknowledged})
	}
	_, _ = syncOnce(t, f)
	if len(told) > 0 {
		t.Errorf("Published was called for an event that is not on the bus: %+v", told)
	}
	_, _ = syncOnce(t, f)
	if want := (publication{key, event.Updated, "11", b.view.Observed, clock}); len(told) != 1 || told[0] != want {
		t.Errorf("Published was called with %+v, want %+v", told, want)
	}
	_, _ = syncOnce(t, f) // the bus has the current state
	if len(told) != 1 {
		t.Errorf("Published was called again without a new event: %+v", told)
	}
}

// TestOutcomeOfAnUnchangedState verifies that the error of a key is cleared when a comparison with
// the state on the bus shows that no publish is needed anymore.
func TestOutcomeOfAnUnchangedState(t *testing.T) {
	b := &bench{ // the event on the bus has no digest, so only its state shows whether it differs
		view: view(withDigest(t, sent("A", "11", `"spec":2`))), acked: live("A", "10"), last: sent("A", "10", `"spec":1`),
		answer: []answer{{err: publish.ErrNotSent}},
	}
	f := b.forwarder()
	_, _ = syncOnce(t, f)
	if got := f.Outcome(key.GroupResource()); !errors.Is(got.Err, publish.ErrNotSent) {
		t.Fatalf("the bus is unavailable: got %+v", got)
	}
	b.view = view(withDigest(t, sent("A", "12", `"spec":1`))) // changed back
	if _, err := syncOnce(t, f); err != nil || len(b.sent) != 1 {
		t.Fatalf("sent %d events (%v), want no second event", len(b.sent), err)
	}
	if got := f.Outcome(key.GroupResource()); got.Err != nil {
		t.Errorf("nothing waits for a publish: got %+v", got)
	}
}
