package forward

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// foreignAt is the position of the foreign event in these tests.
const foreignAt = 9

func foreign(known event.Acked) event.Acked {
	return known.Before(event.Acked{Position: foreignAt})
}

func counted(t *testing.T, f *Forwarder) float64 {
	t.Helper()
	var m dto.Metric
	if err := f.metrics.foreign.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// TestSyncRepairsAForeignEvent verifies that the forwarder requests a consistent read, publishes the
// object's state once after the foreign event, and counts the repair.
func TestSyncRepairsAForeignEvent(t *testing.T) {
	b := &bench{view: view(whole("A", "5", 1)), acked: foreign(live("A", "5")), shown: at(deleted("A", "5"), foreignAt), answer: []answer{
		{err: errors.New("no answer")}, {position: 10},
	}}
	f := b.forwarder()
	var log bytes.Buffer
	f.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if again, err := syncOnce(t, f); again || err != nil || len(b.rechecked) != 1 || len(b.sent) != 0 {
		t.Fatalf("got again %v, err %v, %d rechecks, %d events; want one recheck", again, err, len(b.rechecked), len(b.sent))
	}
	b.view.Outlived.Position = foreignAt
	if _, err := syncOnce(t, f); err == nil {
		t.Fatal("no error of the publish")
	}
	if again, err := syncOnce(t, f); again || err != nil {
		t.Fatalf("got again %v, err %v", again, err)
	}
	if b.acked.Foreign || b.acked.Position != 10 || b.sent[1].ID != "A.5.repaired.9" || b.sent[1].Expected != foreignAt {
		t.Errorf("acked %+v after %s, which expects %d", b.acked, b.sent[1].ID, b.sent[1].Expected)
	}
	if got := counted(t, f); got != 1 {
		t.Errorf("%v foreign events are counted, want 1", got)
	}
	if !strings.Contains(log.String(), "foreign event on the bus") {
		t.Errorf("the log has %s", &log)
	}
}

// TestConflictsThatAreNotForeign verifies that an event that another forwarder or an earlier state
// of the bus explains does not make the entry foreign.
func TestConflictsThatAreNotForeign(t *testing.T) {
	gone := view(nil, tombstone("A", "5"))
	for name, c := range map[string]struct {
		view       event.View
		acked, bus event.Acked
	}{
		"an unknown object":           {view(object("A", "5")), event.Acked{}, event.Acked{UID: "A", ResourceVersion: "4", Position: 50}},
		"the bus lost its end":        {view(object("A", "5")), at(live("A", "4"), 60), event.Acked{UID: "A", ResourceVersion: "3", Position: 50}},
		"a state before the update":   {view(object("A", "5")), live("A", "3"), at(live("A", "4"), 50)},
		"a state before the delete":   {gone, live("A", "3"), at(live("A", "4"), 50)},
		"a state missed, and deleted": {gone, live("A", "3"), at(live("A", "6"), 50)},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: c.view, acked: c.acked, answer: []answer{{err: &publish.ConflictError{Key: key, Bus: c.bus}}}}
			if again, err := b.sync(t); !again || err != nil || b.acked != c.bus {
				t.Errorf("got again %v, err %v, acked %+v; want the event on the bus, and again", again, err, b.acked)
			}
		})
	}
}

// TestConflictOfADeleteDoesNotTrustTheDigest verifies that a conflict of a delete drops the digest
// of the event on the bus. In an earlier version, a foreign event had the digest of a state to which
// the object later returned, so the forged content stayed on the bus.
func TestConflictOfADeleteDoesNotTrustTheDigest(t *testing.T) {
	bus := at(live("A", "6"), 50)
	bus.Digest = event.Digest{1}
	b := &bench{view: view(nil, tombstone("A", "5")), acked: live("A", "3"), answer: []answer{{err: &publish.ConflictError{Key: key, Bus: bus}}}}
	if _, err := b.sync(t); err != nil {
		t.Fatal(err)
	}
	if want := at(live("A", "6"), 50); b.acked != want {
		t.Errorf("acked %+v, want %+v", b.acked, want)
	}
}

// TestConflictsThatMayBeForeign verifies that a conflict with an event that the change does not
// follow makes the entry foreign.
func TestConflictsThatMayBeForeign(t *testing.T) {
	for name, bus := range map[string]event.Acked{
		"the state of the update": live("A", "5"),
		"a state after it":        live("A", "6"),
		"its delete":              deleted("A", "4"),
		"another object":          live("B", "4"),
		"another epoch":           withEpoch(live("A", "4"), 1),
		"not an event":            {},
	} {
		t.Run(name, func(t *testing.T) {
			known, bus := live("A", "3"), at(bus, 50)
			b := &bench{view: view(object("A", "5")), acked: known, answer: []answer{{err: &publish.ConflictError{Key: key, Bus: bus}}}}
			if again, err := b.sync(t); !again || err != nil || b.acked != known.Before(bus) {
				t.Errorf("got again %v, err %v, acked %+v; want a foreign entry, and again", again, err, b.acked)
			}
		})
	}
}

// TestSyncAnswersASteadyForeignWriterWithABackOff verifies that a conflict of a repair is an error,
// so the queue delays the next repair.
func TestSyncAnswersASteadyForeignWriterWithABackOff(t *testing.T) {
	b := &bench{view: view(whole("A", "5", 1)), acked: foreign(live("A", "5")), answer: []answer{
		{err: &publish.ConflictError{Key: key, Bus: at(deleted("A", "5"), 12)}},
	}}
	b.view.Outlived.Position = foreignAt
	if _, err := b.sync(t); err == nil {
		t.Error("no error, so the queue would retry the key without a backoff")
	}
	if want := at(foreign(live("A", "5")), 12); b.acked != want {
		t.Errorf("acked %+v, want %+v", b.acked, want)
	}
}

// TestSyncWaitsForTheWatch verifies that a foreign event in a version that the watch has not seen is
// decided again after a backoff, although nothing enqueues the key. If the watch never reaches the
// version, the event is repaired after a while.
func TestSyncWaitsForTheWatch(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration // of the consistent read
		events int
	}{"just read": {0, 0}, "read long ago": {unseenLimit + time.Minute, 1}} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(nil), acked: foreign(deleted("A", "3")), shown: at(live("B", "5"), foreignAt), answer: []answer{{position: 12}}}
			b.view.Version, b.view.Reported = "6", "4"
			b.view.Outlived = event.Outlived{Position: foreignAt, AbsentAt: "7", At: time.Now().Add(-c.age)}
			again, err := b.sync(t)
			if waits := errors.Is(err, errUnseen); waits != (c.events == 0) || len(b.sent) != c.events {
				t.Errorf("got again %v, err %v, %d events; want %d", again, err, len(b.sent), c.events)
			}
		})
	}
}

// TestSyncFindsItsUnansweredPublish verifies that an event of this forwarder whose acknowledgement
// was lost does not count as foreign, even if its object has changed since.
func TestSyncFindsItsUnansweredPublish(t *testing.T) {
	b := &bench{view: view(whole("A", "5", 1)), acked: live("A", "4"), answer: []answer{{err: errors.New("no answer")}, {position: 12}}}
	f := b.forwarder()
	if _, err := syncOnce(t, f); err == nil {
		t.Fatal("no error")
	}
	stored := b.sent[0].Acked
	stored.Position = foreignAt
	b.acked, b.shown = b.acked.Before(stored), stored // a refresh finds the event
	b.view = view(nil, tombstone("A", "6"))
	stored.Digest = event.Digest{} // no live state confirms the content
	if again, err := syncOnce(t, f); !again || err != nil || b.acked != stored {
		t.Fatalf("got again %v, err %v, acked %+v; want the event of ours", again, err, b.acked)
	}
	if _, err := syncOnce(t, f); err != nil || b.sent[1].ID != "A.deleted" {
		t.Errorf("published %s, %v", b.sent[1].ID, err)
	}
	if got := counted(t, f); got != 0 {
		t.Errorf("%v foreign events are counted", got)
	}
}

// TestInferredDeleteChecksTheLastState verifies that an inferred delete takes the last state from
// the bus only if the data has the version of the checkpoint entry. The data must also match the
// digest, if that digest can be computed from the published form.
func TestInferredDeleteChecksTheLastState(t *testing.T) {
	genuine := withDigest(t, sent("A", "10", `"spec":1`))
	forged := sent("A", "10", `"spec":2`)
	forged.Digest = genuine.Digest
	for name, c := range map[string]struct {
		last *event.Object
		want bool
	}{
		"genuine":         {genuine, true},
		"of other data":   {forged, false},
		"of a later time": {sent("A", "11", `"spec":1`), false},
	} {
		t.Run(name, func(t *testing.T) {
			acked := live("A", "10")
			acked.Digest = genuine.Digest
			b := &bench{view: view(nil, inferred), acked: acked, last: c.last, answer: []answer{{position: 8}}}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			if got := b.sent[0].Attribute("finalstateunknown") == ""; got != c.want {
				t.Errorf("the delete has a last state: %v, want %v", got, c.want)
			}
		})
	}
}

// TestSyncAfterTheBusLostAForeignEvent verifies the delete of an object after the bus has lost all
// of its events. If the object was known, the forwarder publishes an ordinary delete. If only a
// foreign writer named the UID, no delete is due. An earlier version published one as a repair of
// an event at position 0.
func TestSyncAfterTheBusLostAForeignEvent(t *testing.T) {
	for name, c := range map[string]struct {
		acked, want event.Acked
	}{
		"of an object that was known":    {foreign(live("A", "5")), at(live("A", "5"), 0)},
		"of an object that nobody knows": {event.Acked{}.Before(event.Acked{UID: "A", Position: foreignAt}), event.Acked{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(nil), acked: c.acked, lost: true, answer: []answer{{err: &publish.ConflictError{Key: key}}}}
			b.view.Tombstones = []event.Tombstone{tombstone("A", "6")}
			if _, err := b.sync(t); err == nil || len(b.sent) != 1 {
				t.Fatalf("%d events were sent, %v; want a conflict of one", len(b.sent), err)
			}
			if b.acked.Time = 0; b.acked != c.want {
				t.Errorf("acked %+v, want %+v", b.acked, c.want)
			}
		})
	}
}

// TestSyncFindsAnUnansweredPublishOfAnotherUID verifies that the forwarder rechecks a key if the bus
// stored an unacknowledged publish of an earlier object of the name. In an earlier version, only the
// tombstone of the later object was kept, so the delete of the earlier object waited for the next
// refresh.
func TestSyncFindsAnUnansweredPublishOfAnotherUID(t *testing.T) {
	noAnswer := answer{err: errors.New("no answer")}
	b := &bench{view: view(object("B", "5")), acked: deleted("A", "3"), answer: []answer{noAnswer, noAnswer}}
	f := b.forwarder()
	if _, err := syncOnce(t, f); err == nil {
		t.Fatal("no error")
	}
	stored := b.sent[0].Acked
	stored.Position = foreignAt
	b.view = view(object("C", "7"))
	if _, err := syncOnce(t, f); err == nil {
		t.Fatal("no error")
	}
	b.acked, b.shown, b.rechecked = b.acked.Before(stored), stored, nil // a refresh finds the event
	if again, err := syncOnce(t, f); !again || err != nil || b.acked != stored || len(b.rechecked) != 1 {
		t.Fatalf("got again %v, err %v, acked %+v, %d rechecks; want the event of ours and one recheck", again, err, b.acked, len(b.rechecked))
	}
}

// TestSyncIsBehindAnother verifies that a forwarder accepts another forwarder's events about an
// object that its own watch has not shown yet. Two forwarders run without leader election. The
// other one published the delete of an object, and the create and the delete of the next object of
// that name. In an earlier version, the forwarder with the late watch treated the last delete as
// forged and repaired it. It published the object again when its watch showed the object.
func TestSyncIsBehindAnother(t *testing.T) {
	b := &bench{view: view(nil, tombstone("A", "6")), acked: foreign(live("A", "5")), shown: at(deleted("B", "8"), foreignAt)}
	b.view.Version, b.view.Reported, b.view.Outlived.Position = "6", "6", foreignAt
	f := b.forwarder()
	sync := func(wantAgain bool, rechecks int) {
		t.Helper()
		if again, err := syncOnce(t, f); again != wantAgain || err != nil || len(b.sent) != 0 || len(b.rechecked) != rechecks {
			t.Fatalf("got again %v, err %v, %d events, %d rechecks; want again %v, no event, %d rechecks", again, err, len(b.sent), len(b.rechecked), wantAgain, rechecks)
		}
	}
	sync(true, 0)
	if want := (event.Acked{UID: "B", Deleted: true, Position: foreignAt}); b.acked != want {
		t.Fatalf("acked %+v, want %+v", b.acked, want)
	}
	b.view = view(object("B", "7"), tombstone("A", "6")) // the watch advances
	sync(false, 1)
	b.view = view(nil, tombstone("A", "6"), tombstone("B", "8"))
	sync(false, 1)
	if got := counted(t, f); got != 0 {
		t.Errorf("%v foreign events are counted", got)
	}
}

// TestATruncatedEventOfAnother verifies that the forwarder adopts another forwarder's truncated
// event of an object that is too large for the bus. An earlier version treated the event as forged,
// because it has no content. A forged truncated event of an object that fits on the bus is
// repaired.
func TestATruncatedEventOfAnother(t *testing.T) {
	large := withData(whole("A", "6", 1), "6")
	digest := large.Digest
	other := event.Digest{9}
	tooLarge := []answer{{err: publish.ErrTooLarge}, {position: 10}}
	const metadata = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","resourceVersion":"6"}}`
	for name, c := range map[string]struct {
		digest event.Digest
		data   string
		answer []answer
		sent   int
		want   bool
	}{
		"it is too large":                       {digest, metadata, tooLarge[:1], 1, true},
		"it is not":                             {digest, metadata, tooLarge[1:], 1, false},
		"it is too large, of another digest":    {other, metadata, tooLarge, 2, false},
		"it is too large, with other metadata":  {digest, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","resourceVersion":"6","labels":{"a":"b"}}}`, tooLarge, 2, false},
		"it is too large, of another kind":      {digest, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","resourceVersion":"6"}}`, tooLarge, 2, false},
		"it is too large, of an unknown state":  {digest, "", tooLarge, 2, false},
		"it is too large, and the bus has data": {digest, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","resourceVersion":"6"},"data":{"a":"c"}}`, tooLarge, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			event6 := live("A", "6")
			event6.Digest = c.digest
			b := &bench{view: view(large), acked: foreign(live("A", "5")), shown: at(event6, foreignAt), last: event6.Identity(key), answer: c.answer}
			if c.data != "" {
				b.truncated = event.JSON([]byte(c.data))
			}
			b.view.Outlived.Position = foreignAt
			f := b.forwarder()
			again, err := syncOnce(t, f)
			if err != nil || again != c.want || len(b.sent) != c.sent || b.acked.Foreign || (b.acked.Position == foreignAt) != c.want {
				t.Errorf("got again %v, err %v, %d events, acked %+v", again, err, len(b.sent), b.acked)
			}
			if got := counted(t, f); (got == 0) != c.want {
				t.Errorf("%v foreign events are counted", got)
			}
		})
	}
}

// TestARepairIsNotCompared verifies that a repair is published even if the last known content on the
// bus equals the object's content, because the foreign event replaced that content.
func TestARepairIsNotCompared(t *testing.T) {
	o, known := sent("A", "5", `"spec":1`), live("A", "5")
	known.Digest = withDigest(t, sent("A", "5", `"spec":1`)).Digest
	b := &bench{view: view(o), acked: foreign(known), shown: at(live("A", "999"), foreignAt), answer: []answer{{position: 10}}}
	b.view.Outlived.Position = foreignAt
	if _, err := b.sync(t); err != nil || len(b.sent) != 1 {
		t.Errorf("%d events were published, error %v; want the repair", len(b.sent), err)
	}
}
