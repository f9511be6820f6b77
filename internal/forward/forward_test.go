package forward

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
)

var (
	key      = event.Key{Resource: "configmaps", Namespace: "default", Name: "web"}
	resource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
)

// bench is one key, what is known of it on either side, and a bus that answers
// what the test says.
type bench struct {
	view    event.View
	acked   event.Acked
	settled []event.Acked
	answer  []Outcome // in order of publishes
	sent    []*event.Message
	last    *event.Object
	readErr error
	doubted []event.Key
	lost    bool            // the bus has lost what it does not hold
	states  []*event.Object // what Acknowledged was told

	attempted     []string // what Settle was told
	unpublishable int
}

func (b *bench) Lookup(event.Key) event.View { return b.view }
func (b *bench) Settle(_ event.Key, a event.Acked, attempted string) {
	a.Stored = 0
	b.settled = append(b.settled, a)
	b.attempted = append(b.attempted, attempted)
}
func (b *bench) Acknowledged(k event.Key, a event.Acked, state *event.Object) {
	b.Settle(k, a, "")
	b.states = append(b.states, state)
}
func (b *bench) Unpublishable(event.Key)        { b.unpublishable++ }
func (b *bench) Get(event.Key) event.Acked      { return b.acked }
func (b *bench) Put(_ event.Key, a event.Acked) { a.Stored = 0; b.acked = a }
func (b *bench) publish(_ context.Context, m *event.Message, done func(Outcome)) {
	b.sent = append(b.sent, m)
	done(b.answer[len(b.sent)-1])
}

func (b *bench) LastState(context.Context, event.Key, uint64) (*event.Object, error) {
	return b.last, b.readErr
}

func (b *bench) forwarder() *Forwarder {
	return New(Config{
		Informers: b, Checkpoint: b, Publish: b.publish, History: b, Doubt: func(k event.Key) { b.doubted = append(b.doubted, k) }, Builder: event.Builder{Cluster: "test"},
		Lost:   func() bool { return b.lost },
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
}

func (b *bench) sync(t *testing.T) (again bool, err error) {
	t.Helper()
	f := b.forwarder()
	return syncOnce(t, f)
}

// syncOnce waits until a step is done, which may be read for in the background.
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
	b := &bench{view: view(object("A", "11")), acked: live("A", "10"), answer: []Outcome{{Position: 42}}}
	again, err := b.sync(t)
	want := event.Acked{UID: "A", ResourceVersion: "11", Position: 42}
	if again || err != nil || b.acked != want || len(b.settled) != 1 || b.settled[0] != want {
		t.Errorf("got again %v, err %v, acked %+v, settled %+v; want acked and settled %+v", again, err, b.acked, b.settled, want)
	}
	if got := b.sent[0].Expected; got != 7 {
		t.Errorf("published expecting %d, want the checkpoint's 7", got)
	}
}

func TestSyncFailureLeavesTheKeyDirty(t *testing.T) {
	failure := errors.New("no answer")
	b := &bench{view: view(nil, tombstone("A", "12")), acked: live("A", "10"), answer: []Outcome{{Err: failure}}}
	if _, err := b.sync(t); !errors.Is(err, failure) {
		t.Errorf("got error %v, want the bus's", err)
	}
	if b.acked != live("A", "10") || len(b.settled) != 1 || b.settled[0] != live("A", "10") {
		t.Errorf("a failed publish was recorded: acked %+v, settled %+v", b.acked, b.settled)
	}
}

func TestSyncRecreateIsADeleteAndThenACreate(t *testing.T) {
	b := &bench{view: view(object("B", "20"), tombstone("A", "19")), acked: live("A", "10"), answer: []Outcome{{Position: 8}, {Position: 9}}}
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

func TestSyncConflictAdoptsWhatTheBusHoldsAndDecidesAgain(t *testing.T) {
	newer := event.Acked{UID: "A", ResourceVersion: "30", Position: 50}
	b := &bench{view: view(object("A", "11")), acked: live("A", "10"), answer: []Outcome{{Err: errors.New("conflict"), Conflict: &newer}}}
	again, err := b.sync(t)
	if !again || err != nil || b.acked != newer {
		t.Fatalf("got again %v, err %v, acked %+v; want the bus's and again", again, err, b.acked)
	}
	// Deciding again must not overwrite the newer state with ours.
	if again, err = b.sync(t); again || err != nil || len(b.sent) != 1 {
		t.Errorf("got again %v, err %v, %d publishes; want none after the first", again, err, len(b.sent))
	}
	if len(b.doubted) != 2 {
		t.Errorf("%d doubts, want one for the conflict and one for the version that is behind", len(b.doubted))
	}
}

// TestSyncDeleteOfWhatTheBusHasLost: whoever reads along has seen the object. But where
// another writer may have published the delete, and removed it since, it is not
// published a second time.
func TestSyncDeleteOfWhatTheBusHasLost(t *testing.T) {
	gone := event.Tombstone{UID: "A", Object: object("A", "11"), Observed: time.Unix(100, 0), Cause: event.CauseWatch}
	for name, c := range map[string]struct {
		lost    bool
		bus     event.Acked
		deletes int
	}{
		"lost":                    {true, event.Acked{}, 2},
		"maybe deleted long ago":  {false, event.Acked{}, 1},
		"deleted by another":      {true, event.Acked{UID: "A", ResourceVersion: "11", Deleted: true, Position: 9}, 1},
		"a message of who knows?": {true, event.Acked{Position: 9}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(nil, gone), acked: live("A", "10"), lost: c.lost, answer: []Outcome{
				{Err: errors.New("conflict"), Conflict: &c.bus}, {Position: 50},
			}}
			again, err := b.sync(t)
			if !again || err != nil {
				t.Fatalf("got again %v, err %v", again, err)
			}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			if len(b.sent) != c.deletes {
				t.Fatalf("%d deletes were published, want %d", len(b.sent), c.deletes)
			}
			if c.deletes == 2 {
				if m := b.sent[1]; m.Expected != 0 || m.ID != "A.deleted" || m.Attribute("finalstateunknown") != "" {
					t.Errorf("published %+v, want the delete with its last state, expecting nothing", m)
				}
				if want := (event.Acked{UID: "A", ResourceVersion: "11", Deleted: true, Position: 50}); b.acked != want {
					t.Errorf("acked %+v, want %+v", b.acked, want)
				}
			}
		})
	}
}

// TestSyncUnansweredIsToldAsAttempted, so that the tombstone of what the bus may show
// stays: also when the next attempt fails as well.
func TestSyncUnansweredIsToldAsAttempted(t *testing.T) {
	b := &bench{view: view(object("A", "11")), answer: []Outcome{{Err: errors.New("no answer")}, {Err: errors.New("away"), NotSent: true}}}
	f := b.forwarder()
	for range 2 {
		_, _ = syncOnce(t, f)
	}
	if got := strings.Join(b.attempted, " "); got != "A A" {
		t.Errorf("told %q, want A each time", got)
	}
}

func TestSyncTooLargeIsPublishedTruncated(t *testing.T) {
	o := object("A", "11")
	o.Body = event.JSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"big":"x"}}`))
	b := &bench{view: view(o), answer: []Outcome{{Err: errors.New("big"), TooLarge: true}, {Position: 3}}}
	if _, err := b.sync(t); err != nil {
		t.Fatal(err)
	}
	m := b.sent[1]
	if m.Attribute("truncated") != "true" || strings.Contains(string(m.Data), "big") || b.acked.Position != 3 {
		t.Errorf("got truncated %q, data %s, acked %+v", m.Attribute("truncated"), m.Data, b.acked)
	}
}

func TestSyncTooLargeEvenTruncatedStaysDirty(t *testing.T) {
	o := object("A", "11")
	o.Body = event.JSON([]byte(`{"metadata":{}}`))
	big := Outcome{Err: errors.New("big"), TooLarge: true}
	b := &bench{view: view(o), answer: []Outcome{big, big}}
	_, err := b.sync(t)
	if err == nil || b.acked != (event.Acked{}) || b.unpublishable != 1 {
		t.Errorf("got err %v, acked %+v, unpublishable %d; want an error, nothing recorded, and that it is said", err, b.acked, b.unpublishable)
	}
}

// A publish that lands although nobody answered must not hide the delete of its
// object, whatever comes in between (found by the torture suite, seeds 34 and 37).
func TestSyncUnansweredCreateAndThenADelete(t *testing.T) {
	o := tombstone("A", "12").Object
	landed := event.Acked{UID: "A", ResourceVersion: "11", Position: 5}
	for name, c := range map[string]struct {
		first  Outcome
		second []Outcome
		want   string
	}{
		"it had landed": {Outcome{Err: errors.New("no answer")},
			[]Outcome{{Err: errors.New("conflict"), Conflict: &landed}, {Position: 6}}, "created A.11, created A.12, deleted A.deleted"},
		"it had not": {Outcome{Err: errors.New("no answer")},
			[]Outcome{{Position: 5}, {Position: 6}}, "created A.11, created A.12, deleted A.deleted"},
		"it was never sent": {Outcome{Err: errors.New("not ready"), NotSent: true}, nil, "created A.11"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(object("A", "11")), answer: append([]Outcome{c.first}, c.second...)}
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

func TestSyncInferredDeleteCarriesTheLastStateOfTheBus(t *testing.T) {
	inferred := event.Tombstone{UID: "A", Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}
	last := object("A", "10")
	for name, c := range map[string]struct {
		view event.View
		last *event.Object
		body string
		fsu  string
	}{
		"the bus has it":                       {view(nil, inferred), last, `{"of":"A.10"}`, ""},
		"the resource is not watched any more": {event.View{Tombstones: []event.Tombstone{inferred}}, last, `{"of":"A.10"}`, ""},
		"the bus has lost it": {view(nil, inferred), nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"default","uid":"A","resourceVersion":"10"}}`, "true"},
		"the bus has another UID there": {view(nil, inferred), object("Z", "3"),
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"default","uid":"A","resourceVersion":"10"}}`, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: c.view, acked: live("A", "10"), last: c.last, answer: []Outcome{{Position: 9}}}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			m := b.sent[0]
			if m.ID != "A.deleted" || string(m.Data) != c.body || m.Attribute("finalstateunknown") != c.fsu || m.Attribute("cause") != "reconcile" {
				t.Errorf("got %s, data %s, finalstateunknown %q, cause %q", m.ID, m.Data, m.Attribute("finalstateunknown"), m.Attribute("cause"))
			}
			if want := "/api/v1/namespaces/default/configmaps/web"; m.Attribute("subject") != want {
				t.Errorf("got subject %s, want %s", m.Attribute("subject"), want)
			}
		})
	}
}

func TestSyncDeleteOfAResourceThatIsNotWatchedAnyMore(t *testing.T) {
	b := &bench{view: event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}}, acked: live("A", "10"), answer: []Outcome{{Position: 9}}}
	if _, err := b.sync(t); err != nil || len(b.sent) != 1 {
		t.Fatalf("got err %v and %d publishes, want the delete", err, len(b.sent))
	}
	if got, want := b.sent[0].Attribute("subject"), "/api/v1/namespaces/default/configmaps/web"; got != want {
		t.Errorf("got subject %s, want %s", got, want)
	}
}

// The last state of a deleted object may be of another version of the API than the
// one that is watched now: the event's subject named the new, its apiversion the old
// (found by the torture suite).
func TestSyncDeleteOfAnObjectLastSeenInAnotherVersion(t *testing.T) {
	moved := event.Resource{Version: "v2", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	for name, c := range map[string]struct {
		tombstone event.Tombstone
		last      *event.Object
	}{
		"by the watch": {tombstone: tombstone("A", "12")},
		"by the bus":   {event.Tombstone{UID: "A", Cause: event.CauseReconcile, Observed: time.Unix(1, 0)}, object("A", "10")},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: event.View{Resource: moved, Tombstones: []event.Tombstone{c.tombstone}}, acked: live("A", "10"), last: c.last, answer: []Outcome{{Position: 9}}}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			got := b.sent[0].Attribute("apiversion") + " " + b.sent[0].Attribute("subject")
			if want := "v1 /api/v1/namespaces/default/configmaps/web"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestSyncInferredDeleteWaitsWhereTheBusCannotBeRead(t *testing.T) {
	failure := errors.New("bus down")
	b := &bench{view: view(nil, event.Tombstone{UID: "A", Cause: event.CauseReconcile, Observed: time.Unix(1, 0)}), acked: live("A", "10"), readErr: failure}
	if _, err := b.sync(t); !errors.Is(err, failure) || len(b.sent) != 0 {
		t.Errorf("got err %v and %d publishes, want the bus's error and none", err, len(b.sent))
	}
}

func TestSyncUnchangedPublishesNothing(t *testing.T) {
	b := &bench{view: view(object("A", "10")), acked: live("A", "10")}
	if again, err := b.sync(t); again || err != nil || len(b.sent) != 0 || len(b.settled) != 1 {
		t.Errorf("got again %v, err %v, %d publishes, settled %v", again, err, len(b.sent), b.settled)
	}
}
