package forward

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/ledgertest"
)

// Objects and events for the tests.
var (
	object     = ledgertest.Object
	live       = ledgertest.Live
	whole      = ledgertest.Whole
	deleted    = ledgertest.Deleted
	tombstone  = ledgertest.Tombstone
	at         = ledgertest.At
	withEpoch  = ledgertest.WithEpoch
	withData   = ledgertest.WithData
	sent       = ledgertest.Sent
	withDigest = ledgertest.WithDigest
)

var (
	key      = event.Key{Resource: "configmaps", Namespace: "default", Name: "web"}
	resource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
)

// answer is the result of a publish.
type answer struct {
	position uint64
	err      error
}

// bench is a test bench for one key: the informers' view of the key, its entry in the term, and a
// bus that returns the results that the test sets.
type bench struct {
	view                  event.View
	acked                 event.Acked // the entry of the key in the term; a test can change it
	ledger                *ledger.Ledger
	term                  *ledger.Term
	settled               []event.Acked
	answer                []answer // in order of publishes
	sent                  []*event.Message
	last                  *event.Object
	truncated             event.Body
	shown                 event.Acked // the entry of the event that At returns
	readErr               error
	rechecked, unreported []event.Key
	lost                  bool            // result of Lost
	abandoned             bool            // the informer of the object ended while an event was in flight
	states                []*event.Object // arguments of Acknowledge

	attempted     []string // the attempted UID after each call of Settle, Acknowledge and Unanswered
	unpublishable int
	log           strings.Builder
}

func (b *bench) Lookup(k event.Key) event.View {
	b.known()
	var described event.View
	b.ledger.Describe(k, &described)
	v := b.view
	v.Acked, v.Attempted = described.Acked, described.Attempted
	return v
}
func (b *bench) Reported(event.Key) string { return b.view.Reported }
func (b *bench) Interest(event.Key) ledger.Interest {
	return ledger.Interest{Selected: true, Published: true}
}
func (b *bench) Shown(event.Key) string { return "" }
func (b *bench) Settled(event.Key)      {}
func (b *bench) Unreported(k event.Key) { b.unreported = append(b.unreported, k) }
func (b *bench) Unpublishable(event.Key) {
	b.unpublishable++
	b.view.Unpublishable = true
}

var _ Ledger = (*bench)(nil)

// known sets the term's entry to acked and returns the term.
func (b *bench) known() *ledger.Term {
	b.term.Replace(key, b.term.Get(key), b.acked)
	return b.term
}

func (b *bench) settle(a event.Acked) {
	a.Time = 0
	b.settled = append(b.settled, a)
	var v event.View
	b.ledger.Describe(key, &v)
	b.attempted = append(b.attempted, v.Attempted)
}

func (b *bench) Get(k event.Key) event.Acked { return b.known().Get(k) }
func (b *bench) IsAttempt(k event.Key, bus event.Acked) bool {
	return b.known().IsAttempt(k, bus)
}
func (b *bench) Settle(k event.Key, a event.Acked, of ledger.Interest, shown string) {
	b.known().Settle(k, a, of, shown)
	b.settle(a)
}
func (b *bench) Acknowledge(k event.Key, a event.Acked, state *event.Object, of ledger.Interest) bool {
	b.known().Acknowledge(k, a, state, of)
	b.settle(a)
	a.Time = 0
	b.acked, b.states = a, append(b.states, state)
	return !b.abandoned
}
func (b *bench) Unanswered(k event.Key, a, sent event.Acked, c *event.Change, of ledger.Interest) {
	b.known().Unanswered(k, a, sent, c, of)
	b.settle(a)
}
func (b *bench) Conflict(c event.Change, acked, bus event.Acked, lost bool) {
	b.known().Conflict(c, acked, bus, lost)
	b.acked = b.term.Get(key)
	b.acked.Time = 0
}
func (b *bench) Replace(k event.Key, was, is event.Acked) bool {
	ok := b.known().Replace(k, was, is)
	b.acked = b.term.Get(k)
	return ok
}
func (b *bench) Adopt(k event.Key, was, is event.Acked) {
	b.known().Adopt(k, was, is)
	b.acked = b.term.Get(k)
}

func (b *bench) publish(_ context.Context, m *event.Message, done func(uint64, error)) {
	b.sent = append(b.sent, m)
	a := b.answer[len(b.sent)-1]
	done(a.position, a.err)
}

func (b *bench) At(context.Context, event.Key, uint64) (publish.Stored, error) {
	return publish.Stored{Acked: b.shown, Object: b.last, Truncated: b.truncated}, b.readErr
}

func (b *bench) forwarder() *Forwarder { return New(b.config(prometheus.NewRegistry())) }

func (b *bench) config(r prometheus.Registerer) Config {
	b.ledger = ledger.New()
	b.term = b.ledger.NewTerm()
	return Config{
		Informers: b, Ledger: b, Publish: b.publish, History: b, Recheck: func(k event.Key) { b.rechecked = append(b.rechecked, k) }, Builder: event.Builder{Cluster: "test"}, Go: func(f func()) { go f() }, Now: time.Now,
		Lost:   func() bool { return b.lost },
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)), Registerer: r,
	}
}

func (b *bench) sync(t *testing.T) (again bool, err error) {
	t.Helper()
	f := b.forwarder()
	return syncOnce(t, f)
}

// syncOnce calls Sync and waits for done, including background reads.
func syncOnce(t *testing.T, f *Forwarder) (again bool, err error) {
	t.Helper()
	var calls atomic.Int32
	ended := make(chan struct{})
	f.Sync(t.Context(), key, func(a bool, e error) {
		if calls.Add(1) == 1 {
			again, err = a, e
			close(ended)
		}
	})
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("done was not called")
	}
	if n := calls.Load(); n != 1 {
		t.Fatalf("done was called %d times, want once", n)
	}
	return again, err
}

func view(o *event.Object, tombstones ...event.Tombstone) event.View {
	return event.View{Resource: resource, Live: o, Tombstones: tombstones, Cause: event.CauseWatch, Observed: time.Unix(100, 0)}
}

func TestSyncRecordsOnlyAfterTheAcknowledgement(t *testing.T) {
	b := &bench{view: view(object("A", "11")), acked: live("A", "10"), answer: []answer{{position: 42}}}
	again, err := b.sync(t)
	want := event.Acked{UID: "A", ResourceVersion: "11", Position: 42}
	if again || err != nil || b.acked != want || len(b.settled) != 1 || b.settled[0] != want {
		t.Errorf("got again %v, err %v, acked %+v, settled %+v; want acked and settled %+v", again, err, b.acked, b.settled, want)
	}
	if got := b.sent[0].Expected; got != 7 {
		t.Errorf("published with expected position %d, want 7 from the checkpoint", got)
	}
}

// TestSyncTimeNeverFalls verifies that the time of an event is not before the time of the last
// event, unless the last event's time is too far in the future.
func TestSyncTimeNeverFalls(t *testing.T) {
	observed := time.Now().Add(-time.Minute).Round(0)
	for name, c := range map[string]struct{ last, want time.Time }{
		"earlier":       {observed.Add(-time.Second), observed},
		"later":         {observed.Add(time.Second).Truncate(time.Millisecond), observed.Add(time.Second).Truncate(time.Millisecond)},
		"in the future": {observed.Add(2 * time.Hour), observed},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []event.View{view(object("A", "11")), view(nil, tombstone("A", "12"))} {
				v.Observed = observed
				for i := range v.Tombstones {
					v.Tombstones[i].Observed = observed
				}
				b := &bench{view: v, acked: live("A", "10"), answer: []answer{{position: 42}}}
				b.acked.Time = c.last.UnixMilli()
				if _, err := b.sync(t); err != nil {
					t.Fatal(err)
				}
				if got, want := b.sent[0].Attribute("time"), c.want.UTC().Format(time.RFC3339Nano); got != want {
					t.Errorf("%s has time %s, want %s", b.sent[0].ID, got, want)
				}
			}
		})
	}
}

func TestSyncFailureLeavesTheKeyDirty(t *testing.T) {
	failure := errors.New("no answer")
	b := &bench{view: view(nil, tombstone("A", "12")), acked: live("A", "10"), answer: []answer{{err: failure}}}
	if _, err := b.sync(t); !errors.Is(err, failure) {
		t.Errorf("got error %v, want the error of the bus", err)
	}
	if b.acked != live("A", "10") || len(b.settled) != 1 || b.settled[0] != live("A", "10") {
		t.Errorf("a failed publish was recorded: acked %+v, settled %+v", b.acked, b.settled)
	}
}

func TestSyncRecreateIsADeleteAndThenACreate(t *testing.T) {
	b := &bench{view: view(object("B", "20"), tombstone("A", "19")), acked: live("A", "10"), answer: []answer{{position: 8}, {position: 9}}}
	again, err := b.sync(t)
	if !again || err != nil {
		t.Fatalf("after the delete: again %v, err %v; want again", again, err)
	}
	if again, err = b.sync(t); again || err != nil {
		t.Fatalf("after the create: again %v, err %v; want done", again, err)
	}
	got := b.sent[0].ID + " " + b.sent[0].Attribute("type") + ", " + b.sent[1].ID + " " + b.sent[1].Attribute("type")
	if want := "A.deleted " + string(event.Deleted) + ", B.20 " + string(event.Created); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if b.sent[1].Expected != 8 {
		t.Errorf("the create expects %d, want the delete's position 8", b.sent[1].Expected)
	}
}

func TestSyncAfterAConflictDecidesAgain(t *testing.T) {
	newer := event.Acked{UID: "A", ResourceVersion: "30", Position: 50}
	b := &bench{view: view(object("A", "11")), acked: live("A", "10"), shown: newer, answer: []answer{{err: &publish.ConflictError{Bus: newer}}}}
	again, err := b.sync(t)
	if !again || err != nil || b.acked != live("A", "10").Before(newer) {
		t.Fatalf("got again %v, err %v, acked %+v; want the known state at the position of the bus, and again", again, err, b.acked)
	}
	// The next decision must not overwrite the newer state with ours.
	if again, err = b.sync(t); again || err != nil || len(b.sent) != 1 {
		t.Errorf("got again %v, err %v, %d publishes; want none after the first", again, err, len(b.sent))
	}
	if len(b.rechecked) != 2 {
		t.Errorf("%d rechecks, want one for the conflict and one for the stale version", len(b.rechecked))
	}
}

// TestConflictWithAForgottenObject verifies that a publish conflict discards the pending consistency points if
// the bus has an object that the informers don't show. An earlier version published a point while the bus had
// an object that no longer existed (found by the simulator).
func TestConflictWithAForgottenObject(t *testing.T) {
	old := event.Acked{UID: "A", ResourceVersion: "3", Position: 1}
	removed := old
	removed.Deleted = true
	for name, c := range map[string]struct {
		bus  event.Acked
		gone []event.Tombstone
		want int // discards: one before the conflict is recorded, and one after that
	}{
		"the bus has another object":                   {old, nil, 2},
		"the bus has another object, which is deleted": {old, []event.Tombstone{tombstone("A", "4")}, 0},
		"the bus has the object":                       {event.Acked{UID: "B", ResourceVersion: "3", Position: 1}, nil, 0},
		"the bus has a delete":                         {removed, nil, 0},
		"the bus has no event":                         {event.Acked{}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(object("B", "10"), c.gone...), answer: []answer{{err: &publish.ConflictError{Bus: c.bus}}}}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			if len(b.unreported) != c.want || len(b.rechecked) != 1 {
				t.Errorf("points were discarded %d times and %d comparisons requested, want %d and 1", len(b.unreported), len(b.rechecked), c.want)
			}
		})
	}
}

// TestSyncOfADeleteInTheLiveVersion verifies that a delete on the bus in the version of the live
// object causes a recheck, because only a consistent read shows whether the object exists.
func TestSyncOfADeleteInTheLiveVersion(t *testing.T) {
	b := &bench{view: view(object("A", "5")), acked: event.Acked{UID: "A", ResourceVersion: "5", Deleted: true, Position: 7}}
	if again, err := b.sync(t); again || err != nil {
		t.Fatalf("got again %v, err %v", again, err)
	}
	if len(b.rechecked) != 1 || len(b.sent) != 0 {
		t.Errorf("%d rechecks and %d events, want one recheck", len(b.rechecked), len(b.sent))
	}
}

// TestSyncUnansweredKeepsTheTombstone verifies that the term still records a UID that the bus may
// show if the next publish fails too.
func TestSyncUnansweredKeepsTheTombstone(t *testing.T) {
	b := &bench{view: view(object("A", "11")), answer: []answer{{err: errors.New("no answer")}, {err: publish.ErrNotSent}}}
	f := b.forwarder()
	for range 2 {
		_, _ = syncOnce(t, f)
	}
	if got := strings.Join(b.attempted, " "); got != "A A" {
		t.Errorf("attempted is %q, want A each time", got)
	}
}

// TestSyncOfAnAbandonedObject verifies that the forwarder compares an object with the cluster if its
// informer ended while the event was in flight.
func TestSyncOfAnAbandonedObject(t *testing.T) {
	for _, abandoned := range []bool{true, false} {
		b := &bench{view: view(object("A", "10")), answer: []answer{{position: 1}}, abandoned: abandoned}
		if again, err := b.sync(t); again || err != nil || (len(b.rechecked) > 0) != abandoned {
			t.Errorf("abandoned: %t, again: %t, %v, compared %v", abandoned, again, err, b.rechecked)
		}
	}
	b := &bench{view: view(nil, tombstone("A", "11")), acked: live("A", "10"), answer: []answer{{position: 2}}, abandoned: true}
	if _, err := b.sync(t); err != nil || len(b.rechecked) > 0 {
		t.Errorf("a delete: %v, compared %v", err, b.rechecked)
	}
}

// TestSyncRepeatsAnUnansweredCreate verifies that a create is published until the bus answers, even if
// the informer of the object has ended. Until then, the key is dirty. After that, a comparison looks
// for a delete, and no consistency point precedes it.
func TestSyncRepeatsAnUnansweredCreate(t *testing.T) {
	b := &bench{view: view(object("A", "11")), abandoned: true, answer: []answer{{err: errors.New("no answer")}, {err: errors.New("no answer")}, {position: 5}}}
	l := ledger.New()
	c := b.config(prometheus.NewRegistry())
	b.ledger, b.term = l, l.NewTerm()
	f := New(c)
	_, _ = syncOnce(t, f)
	other := tombstone("B", "12")
	l.AddTombstone(key, other)
	forgotten := func() {
		b.view = view(nil, other)
		b.view.Unanswered = nil
		l.Describe(key, &b.view)
	}
	forgotten()
	if _, err := syncOnce(t, f); err == nil || !l.IsDirty(key) {
		t.Errorf("without an acknowledgement: err %v, dirty %t", err, l.IsDirty(key))
	}
	forgotten()
	if again, err := syncOnce(t, f); !again || err != nil || l.IsDirty(key) {
		t.Errorf("after the answer: again %t, err %v, dirty %t", again, err, l.IsDirty(key))
	}
	for _, m := range b.sent {
		if m.ID != "A.11" || m.Expected != 0 {
			t.Errorf("sent %s after position %d", m.ID, m.Expected)
		}
	}
	if len(b.sent) != 3 || b.acked.UID != "A" || b.acked.Position != 5 || len(b.rechecked) == 0 || len(b.unreported) == 0 {
		t.Errorf("%d publishes, acked %+v, rechecked %v, unreported %v", len(b.sent), b.acked, b.rechecked, b.unreported)
	}
}

// TestSyncAfterAnUnansweredRemoval verifies that an object that leaves the selection and returns is
// published again after an unacknowledged removal. The removal may have reached the bus late, so the
// last acknowledged state must not count as the state on the bus.
func TestSyncAfterAnUnansweredRemoval(t *testing.T) {
	projected := func(version string) *event.Object {
		o := object("A", version)
		o.Body = event.JSON([]byte(`{"data":{}}`))
		o.Digest, _ = decode.DigestOf(o.Body)
		return o
	}
	for name, back := range map[string]*event.Object{"in the same version": object("A", "10"), "in a later version, unchanged": projected("12")} {
		t.Run(name, func(t *testing.T) {
			acked := live("A", "10")
			acked.Digest = back.Digest
			landed := event.Acked{UID: "A", ResourceVersion: "11", Deleted: true, Position: 8}
			b := &bench{view: view(nil, tombstone("A", "11")), acked: acked, answer: []answer{{err: errors.New("no answer")}, {err: &publish.ConflictError{Bus: landed}}}}
			f := b.forwarder()
			_, _ = syncOnce(t, f)
			b.view = view(back)
			if again, err := syncOnce(t, f); !again || err != nil || len(b.sent) != 2 {
				t.Fatalf("got again %v, err %v, %d publishes; want a second publish, and again after its conflict", again, err, len(b.sent))
			}
			if b.acked.Live() && !b.acked.Foreign {
				t.Errorf("the checkpoint has %+v, and the bus %+v", b.acked, landed)
			}
		})
	}
}

func TestSyncTooLargeIsPublishedTruncated(t *testing.T) {
	o := object("A", "11")
	o.Body = event.JSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"big":"x"}}`))
	b := &bench{view: view(o), answer: []answer{{err: publish.ErrTooLarge}, {position: 3}}}
	if _, err := b.sync(t); err != nil {
		t.Fatal(err)
	}
	m := b.sent[1]
	if m.Attribute("truncated") != "true" || strings.Contains(string(m.Data), "big") || b.acked.Position != 3 {
		t.Errorf("got truncated %q, data %s, acked %+v", m.Attribute("truncated"), m.Data, b.acked)
	}
	if len(b.attempted) != 1 {
		t.Errorf("the ledger got %d results, want only the acknowledgement: another result would drop a delete that arrives before the smaller event is published", len(b.attempted))
	}
}

func TestSyncTooLargeEvenTruncatedStaysDirty(t *testing.T) {
	o := object("A", "11")
	o.Body = event.JSON([]byte(`{"metadata":{}}`))
	big := answer{err: publish.ErrTooLarge}
	b := &bench{view: view(o), answer: []answer{big, big}}
	_, err := b.sync(t)
	if err == nil || b.acked != (event.Acked{}) || b.unpublishable != 1 {
		t.Errorf("got err %v, acked %+v, unpublishable %d; want an error, nothing recorded, and one call of Unpublishable", err, b.acked, b.unpublishable)
	}
}

// TestSyncUnpublishableIsLoggedOnce verifies that only the first attempt to publish an unpublishable
// state logs errors and warnings. The queue retries that state forever.
func TestSyncUnpublishableIsLoggedOnce(t *testing.T) {
	o := object("A", "11")
	o.Body = event.JSON([]byte(`{"metadata":{}}`))
	big := answer{err: publish.ErrTooLarge}
	b := &bench{view: view(o), answer: []answer{big, big, big, big, big, big}}
	f := b.forwarder()
	for range 3 {
		_, _ = syncOnce(t, f)
	}
	if len(b.sent) != 6 || strings.Count(b.log.String(), "\n") != 2 {
		t.Errorf("%d publishes, logged\n%s\nwant two lines for six publishes", len(b.sent), &b.log)
	}
	b.view.Live, b.view.Unpublishable = &event.Object{UID: "B", ResourceVersion: "1"}, false // no event can be built without a name
	for range 3 {
		_, _ = syncOnce(t, f)
	}
	if strings.Count(b.log.String(), "\n") != 3 {
		t.Errorf("logged\n%s\nwant one line more", &b.log)
	}
}

// TestSyncTooLargeDelete verifies that a delete whose metadata is too large is published with the
// object's identity only.
func TestSyncTooLargeDelete(t *testing.T) {
	gone := tombstone("A", "12")
	gone.Object.Body = event.JSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","labels":{"big":"x"}}}`))
	big := answer{err: publish.ErrTooLarge}
	b := &bench{view: view(nil, gone), acked: live("A", "10"), answer: []answer{big, big, {position: 8}}}
	if _, err := b.sync(t); err != nil {
		t.Fatal(err)
	}
	m := b.sent[2]
	if m.ID != "A.deleted" || m.Attribute("finalstateunknown") != "true" || strings.Contains(string(m.Data), "big") || !b.acked.Deleted {
		t.Errorf("got %s %v, data %s, acked %+v", m.ID, m.Attributes, m.Data, b.acked)
	}
}

// TestSyncTooDeep verifies that an object is truncated if its nesting is too deep for subscribers to
// parse.
func TestSyncTooDeep(t *testing.T) {
	deep := func(levels int) []byte {
		return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`)
	}
	for levels, truncated := range map[int]string{9_900: "", 9_991: "true", 10_000: "true"} {
		o := object("A", "11")
		o.Body = event.JSON(deep(levels))
		b := &bench{view: view(o), answer: []answer{{position: 3}}}
		if _, err := b.sync(t); err != nil || len(b.sent) != 1 {
			t.Fatalf("%d levels: %d publishes, %v", levels, len(b.sent), err)
		}
		m := b.sent[0]
		text, err := m.Structured()
		if err != nil || !json.Valid(text) || m.Attribute("truncated") != truncated {
			t.Errorf("%d levels: truncated %q, want %q; structured: %v", levels, m.Attribute("truncated"), truncated, err)
		}
	}
}

// TestSyncUnansweredCreateAndThenADelete verifies that the delete of an object is published after
// an unacknowledged create, whether or not the bus stored that create (found by the torture suite,
// seeds 34 and 37).
func TestSyncUnansweredCreateAndThenADelete(t *testing.T) {
	o := tombstone("A", "12").Object
	landed := event.Acked{UID: "A", ResourceVersion: "11", Position: 5}
	for name, c := range map[string]struct {
		first  answer
		second []answer
		want   string
	}{
		"it had landed": {answer{err: errors.New("no answer")},
			[]answer{{err: &publish.ConflictError{Bus: landed}}, {position: 6}}, "created A.11, created A.12, deleted A.deleted"},
		"it had not": {answer{err: errors.New("no answer")},
			[]answer{{position: 5}, {position: 6}}, "created A.11, created A.12, deleted A.deleted"},
		"it was never sent": {answer{err: publish.ErrNotSent}, nil, "created A.11"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(object("A", "11")), shown: landed, answer: append([]answer{c.first}, c.second...)}
			f := b.forwarder()
			sync := func() { _, _ = syncOnce(t, f) }
			sync()
			b.view = view(nil, event.Tombstone{UID: "A", Object: o, Cause: event.CauseWatch, Observed: time.Unix(100, 0)})
			for range 3 {
				sync()
			}
			var sent []string
			for _, m := range b.sent {
				sent = append(sent, event.Type(m.Attribute("type")).Short()+" "+m.ID)
			}
			if got := strings.Join(sent, ", "); got != c.want {
				t.Errorf("sent %s, want %s", got, c.want)
			}
		})
	}
}

func TestSyncUnchangedPublishesNothing(t *testing.T) {
	b := &bench{view: view(object("A", "10")), acked: live("A", "10")}
	if again, err := b.sync(t); again || err != nil || len(b.sent) != 0 || len(b.settled) != 1 {
		t.Errorf("got again %v, err %v, %d publishes, settled %v", again, err, len(b.sent), b.settled)
	}
}
