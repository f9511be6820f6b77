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

// foreignAt is where the foreign event of these tests is.
const foreignAt = 9

func at(a event.Acked, position uint64) event.Acked {
	a.Position = position
	return a
}

func foreign(known event.Acked) event.Acked {
	return known.Before(event.Acked{Position: foreignAt})
}

func shown(a event.Acked, o *event.Object) publish.Stored {
	return publish.Stored{Acked: at(a, foreignAt), Object: o}
}

func withEpoch(a event.Acked, epoch uint16) event.Acked {
	a.Epoch = epoch
	return a
}

func counted(t *testing.T, f *Forwarder) float64 {
	t.Helper()
	var m dto.Metric
	if err := f.metrics.foreign.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// withData gives an object data as the API server has it.
func withData(o *event.Object, version string) *event.Object {
	o.Body = event.JSON([]byte(`{"apiVersion":"v1","metadata":{"name":"web","resourceVersion":"` + version + `"},"data":{"a":"b"}}`))
	return o
}

func TestDecideForeign(t *testing.T) {
	const ask, adopt = "ask", "adopt "
	forged := whole("A", "5", 1)
	forged.Body = event.JSON([]byte(`{"of":"B"}`))
	for name, c := range map[string]struct {
		live      *event.Object
		gone      []event.Tombstone
		known     event.Acked
		shown     publish.Stored
		ours      bool
		epoch     uint16 // of the informers
		confirmed bool   // by a consistent read
		want      string // the ID of a repair, the version of an adopted entry, or ask
	}{
		"an attempt of ours":                         {live: whole("A", "6", 1), known: live("A", "4"), shown: shown(live("A", "5"), nil), ours: true, want: adopt + "5"},
		"the live state":                             {live: whole("A", "5", 1), known: live("A", "4"), shown: shown(live("A", "5"), whole("A", "5", 1)), want: adopt + "5"},
		"a copy of ours":                             {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "5"), whole("A", "5", 1)), want: adopt + "5"},
		"a state in between":                         {live: whole("A", "6", 1), known: live("A", "4"), shown: shown(live("A", "5"), nil), want: adopt + "5"},
		"created, and then updated by another":       {live: whole("A", "6", 1), known: deleted("B", "4"), shown: shown(live("A", "5"), nil), want: adopt + "5"},
		"deselected by another, and selected":        {live: whole("A", "6", 1), known: live("A", "5"), shown: shown(deselected("A", "5"), nil), want: adopt + "5"},
		"updated by another, and deleted":            {gone: []event.Tombstone{tombstone("A", "8")}, known: live("A", "5"), shown: shown(live("A", "6"), nil), want: adopt + "6"},
		"recreated by another, and deleted":          {gone: []event.Tombstone{tombstone("A", "6"), tombstone("B", "8")}, known: live("A", "5"), shown: shown(live("B", "7"), nil), want: adopt + "7"},
		"deleted by another, and recreated":          {live: whole("B", "7", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("A", "6"), nil), want: adopt + "6"},
		"created by another, and recreated":          {live: whole("C", "9", 1), known: deleted("A", "5"), shown: shown(live("B", "7"), nil), want: adopt},
		"deleted by another twice, and recreated":    {live: whole("C", "9", 1), known: deleted("A", "5"), shown: shown(deleted("B", "8"), nil), want: adopt},
		"deleted by another, came and went":          {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "8"), nil), want: adopt},
		"deleted by another, inferred, and one more": {gone: []event.Tombstone{{UID: "A", Confirmed: true}}, known: live("A", "5"), shown: shown(deleted("B", "8"), nil), confirmed: true, want: adopt},
		"deselected by another, came and went":       {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deselected("B", "8"), nil), want: adopt},
		"deleted by another, and one more":           {live: whole("C", "9", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "8"), nil), want: adopt},
		"one of an unknown object, and updated":      {live: whole("A", "6", 1), known: live("A", ""), shown: shown(live("A", "5"), nil), want: adopt + "5"},
		"nothing of an unknown object, and it is":    {live: whole("A", "6", 1), known: event.Acked{}, shown: shown(event.Acked{}, nil), want: adopt},
		"before history went back":                   {live: whole("A", "4", 1), epoch: 1, known: deleted("A", "5"), shown: shown(deleted("B", "7"), nil), want: adopt + "7"},
		"deleted by another":                         {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("A", "6"), nil), want: adopt + "6"},
		"deleted by another, with its last version":  {gone: []event.Tombstone{{UID: "A", Object: withData(whole("A", "6", 1), "6"), Observed: time.Unix(1, 0)}}, known: live("A", "5"), shown: shown(deleted("A", "5"), withData(whole("A", "5", 1), "5")), want: adopt + "6"},
		"deleted twice":                              {known: deleted("A", "5"), shown: shown(deleted("A", "999"), nil), want: adopt + "5"},
		"nothing of an object that never was":        {known: event.Acked{}, shown: shown(event.Acked{}, nil), want: adopt},
		"the known version, and one without change":  {live: whole("A", "6", 1), known: live("A", "5"), shown: shown(live("A", "5"), forged), want: ask},
		"its delete, and one without change":         {live: whole("A", "6", 1), known: live("A", "5"), shown: shown(deleted("A", "5"), forged), want: ask},
		"the known version, since history went back": {live: whole("A", "5", 1), epoch: 1, known: live("A", "5"), shown: shown(deleted("A", "5"), nil), want: ask},
		"another state, before the read":             {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "5"), forged), want: ask},
		"a later state, before the read":             {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "999"), nil), want: ask},
		"a delete, before the read":                  {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(deleted("A", "5"), nil), want: ask},
		"a recreated object, before the watch":       {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(live("B", "7"), nil), want: ask},
		"a state, and it is deleted, before":         {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(live("A", "999"), nil), want: ask},
		"an object that was gone, before the read":   {known: deleted("A", "5"), shown: shown(live("B", "6"), nil), want: ask},

		"other data":                 {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "5"), forged), confirmed: true, want: "updated A.5.repaired.9"},
		"no data":                    {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "5"), nil), confirmed: true, want: "updated A.5.repaired.9"},
		"a later state":              {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "999"), nil), confirmed: true, want: "updated A.5.repaired.9"},
		"a later epoch":              {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(withEpoch(live("A", "5"), 9), whole("A", "5", 1)), confirmed: true, want: "updated A.5.repaired.9"},
		"an earlier state than ours": {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "4"), nil), confirmed: true, want: "updated A.5.repaired.9"},
		"a delete":                   {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(deleted("A", "5"), nil), confirmed: true, want: "created A.5.repaired.9"},
		"a deselect":                 {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(deselected("A", "5"), nil), confirmed: true, want: "created A.5.repaired.9"},
		"another uid":                {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("B", "6"), nil), confirmed: true, want: "updated A.5.repaired.9"},
		"not an event":               {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(event.Acked{}, nil), confirmed: true, want: "created A.5.repaired.9"},
		"an object that is gone":     {known: deleted("A", "5"), shown: shown(live("A", "5"), nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"another that never was":     {known: deleted("A", "5"), shown: shown(live("B", "999"), nil), confirmed: true, want: "deleted B.deleted.repaired.9"},
		"not an event, and gone":     {known: deleted("A", "5"), shown: shown(event.Acked{}, nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"a state, and it is deleted": {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(live("A", "999"), nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"a delete with another last state": {
			gone: []event.Tombstone{{UID: "A", Object: whole("A", "5", 1), Observed: time.Unix(1, 0), Cause: event.CauseWatch}}, known: live("A", "5"),
			shown: shown(deleted("A", "5"), forged), confirmed: true, want: "deleted A.deleted.repaired.9",
		},
		"a delete of another, before the end":   {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "6"), nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"a delete of another, in a later epoch": {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(withEpoch(deleted("B", "8"), 9), nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"a delete of another, of the future":    {live: whole("C", "9", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "10"), nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"a delete of another, and it is live":   {live: whole("B", "9", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "9"), nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"a delete of another, and deselected":   {gone: []event.Tombstone{unselected("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "8"), nil), confirmed: true, want: "deselected A.deselected.repaired.9"},
		"it is recreated":                       {live: whole("B", "7", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(live("C", "1"), nil), confirmed: true, want: "deleted A.deleted.repaired.9"},
		"a state of what is deselected":         {known: deselected("A", "5"), shown: shown(live("A", "5"), nil), confirmed: true, want: "deselected A.deselected.repaired.9"},
		"recreated, but no proof":               {live: whole("B", "7", 1), known: live("A", "5"), shown: shown(live("C", "1"), nil), confirmed: true, want: "await"},
		"gone, but no proof of a delete":        {known: live("A", "5"), shown: shown(live("A", "999"), nil), confirmed: true, want: "await"},
	} {
		t.Run(name, func(t *testing.T) {
			v, acked := view(c.live, c.gone...), foreign(c.known)
			v.Epoch = c.epoch
			if c.confirmed {
				v.Outlived = foreignAt
			}
			is, change, reason := DecideForeign(key, v, acked, c.shown, c.ours)
			got := string(reason)
			switch {
			case is != nil && (is.Foreign || is.Position != foreignAt || change != nil):
				t.Fatalf("adopted %+v", is)
			case is != nil:
				got = adopt + is.ResourceVersion
			case change != nil:
				change.Key, change.Resource = key, resource
				complete(change, nil, acked)
				m, err := event.Builder{Cluster: "c"}.Message(*change)
				if err != nil {
					t.Fatal(err)
				}
				if m.Acked.Epoch != 0 || m.Acked.ResourceVersion == "999" {
					t.Errorf("the repair takes over %+v", m.Acked)
				}
				got = change.Type.Short() + " " + m.ID
			case reason == ReasonForeign:
				got = ask
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestARemovalBeforeTheEnd: another forwarder deselected an object, or missed its last change,
// and the object was deleted. Its event once counted as a forgery, because the data is not the
// last state.
func TestARemovalBeforeTheEnd(t *testing.T) {
	state := func(version, body string) *event.Object { return withDigest(t, sent("A", version, body)) }
	known, last, forged := state("5", `"spec":1`), state("8", `"spec":2`), state("5", `"spec":3`)
	older := state("4", `"spec":0`)
	text, lastText := whole("A", "5", 1), whole("A", "8", 2)
	lastText.Body = event.JSON([]byte(`{"spec":2}`))
	otherText := whole("A", "5", 1)
	otherText.Body = event.JSON([]byte(`{"spec":3}`))
	of := func(a event.Acked, o *event.Object) event.Acked { a.Digest = o.Digest; return a }
	for name, c := range map[string]struct {
		shown event.Acked
		data  *event.Object
		known *event.Object
		last  *event.Object
		want  bool
	}{
		"deselected in the known state":                {of(deselected("A", "5"), known), known, known, last, true},
		"deleted in the known state":                   {of(deleted("A", "5"), known), known, known, last, true},
		"deselected in a state in between":             {deselected("A", "6"), state("6", `"spec":4`), known, last, true},
		"deleted in a state in between":                {deleted("A", "6"), state("6", `"spec":4`), known, last, false},
		"deselected before the known state":            {deselected("A", "4"), state("4", `"spec":4`), known, last, false},
		"deselected after the last state":              {deselected("A", "9"), state("9", `"spec":4`), known, last, false},
		"deselected in the known state, of other data": {of(deselected("A", "5"), known), forged, known, last, false},
		"deleted in the known state, of other data":    {of(deleted("A", "5"), known), forged, known, last, false},
		"deselected later than the watch has shown":    {of(deselected("A", "5"), known), known, known, older, true},
		"later than shown, of other data":              {of(deselected("A", "5"), known), forged, known, older, false},
		"later than shown and than the known state":    {deselected("A", "6"), state("6", `"spec":4`), known, older, false},
		"deselected in the last state, of other data":  {of(deselected("A", "5"), known), forged, known, known, false},
		"deselected in the last text, of other data":   {of(deselected("A", "5"), text), otherText, text, text, false},
		"deselected in another epoch":                  {withEpoch(of(deselected("A", "5"), known), 1), known, known, last, false},
		"deselected in the known text":                 {of(deselected("A", "5"), text), text, text, lastText, true},
		"deselected in the known text, of its digest":  {deselected("A", "5"), text, text, lastText, false},
		"deleted in the known text":                    {of(deleted("A", "5"), text), text, text, lastText, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(nil, event.Tombstone{UID: "A", Object: c.last, Observed: time.Unix(1, 0)})
			v.Outlived = foreignAt
			adopt, change, reason := DecideForeign(key, v, foreign(of(live("A", "5"), c.known)), shown(c.shown, c.data), false)
			if got := adopt != nil && adopt.Deleted; got != c.want || got == (change != nil) {
				t.Errorf("got %+v, %+v, %s; want it taken over: %v", adopt, change, reason, c.want)
			}
		})
	}
}

// TestSyncRepairsAForeignEvent: the forwarder asks for a consistent read, publishes the state
// once after the foreign event, and counts it.
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
	b.view.Outlived = foreignAt
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

// TestConflictsThatAreNotForeign: another forwarder published an object that the checkpoint
// does not know, and a bus that lost its end shows an earlier event.
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

// TestConflictOfADeleteDoesNotTrustTheDigest: a foreign writer copied the digest of a state that the
// object has when it is selected again. The forged content stayed.
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

// TestConflictsThatMayBeForeign: an event that the change does not follow needs a look at the
// cluster.
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

// TestSyncAnswersASteadyForeignWriterWithABackOff: each conflict of a repair is an error, so
// that the queue delays the next one.
func TestSyncAnswersASteadyForeignWriterWithABackOff(t *testing.T) {
	b := &bench{view: view(whole("A", "5", 1)), acked: foreign(live("A", "5")), answer: []answer{
		{err: &publish.ConflictError{Key: key, Bus: at(deleted("A", "5"), 12)}},
	}}
	b.view.Outlived = foreignAt
	if _, err := b.sync(t); err == nil {
		t.Error("no error, so the key comes back at once")
	}
	if want := at(foreign(live("A", "5")), 12); b.acked != want {
		t.Errorf("acked %+v, want %+v", b.acked, want)
	}
}

// TestSyncFindsItsUnansweredPublish: an event of ours whose acknowledgement was lost is not
// foreign, also if its object has changed since.
func TestSyncFindsItsUnansweredPublish(t *testing.T) {
	b := &bench{view: view(whole("A", "5", 1)), acked: live("A", "4"), answer: []answer{{err: errors.New("no answer")}, {position: 12}}}
	f := b.forwarder()
	if _, err := syncOnce(t, f); err == nil {
		t.Fatal("no error")
	}
	stored := b.sent[0].Acked
	stored.Position = foreignAt
	b.acked, b.shown = b.acked.Before(stored), stored // a refresh finds it
	b.view = view(nil, tombstone("A", "6"))
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

// TestInferredDeleteChecksTheLastState: the data must be of the version in the checkpoint, and
// of the digest in the event if that can be computed.
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

// TestSyncAfterTheBusLostAForeignEvent: a delete is published without an event before it, as
// the delete that it is, if the object was known. The UID of another writer needs none: it
// once was published as a repair of the event at position 0.
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

// TestForeignRemovalIsNotBeforeTheEvent: a message of a former leader arrived late. The
// delete that answered it had an earlier version, or none, so a subscriber that sorts events
// dropped it.
func TestForeignRemovalIsNotBeforeTheEvent(t *testing.T) {
	unknown := event.Acked{}.Before(at(live("A", "5"), foreignAt))
	confirmed := event.Tombstone{UID: "A", Confirmed: true, Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}
	gone := tombstone("A", "4")
	gone.Confirmed = true
	for name, c := range map[string]struct {
		known   event.Acked
		gone    event.Tombstone
		seen    string // the version of the indexer
		epoch   uint16
		version string // of the delete
	}{
		"only the event names the object": {unknown, confirmed, "7", 0, "5"},
		"the event has a later state":     {foreign(live("A", "4")), confirmed, "7", 0, "5"},
		"the watch had an earlier state":  {foreign(live("A", "3")), tombstone("A", "4"), "7", 0, "5"},
		"a version that nobody has seen":  {foreign(live("A", "3")), gone, "4", 0, "4"},
		"the seen versions are not known": {foreign(live("A", "4")), confirmed, "", 0, "4"},
		"the event is of another object":  {foreign(live("B", "4")), event.Tombstone{UID: "B", Confirmed: true}, "7", 0, "4"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(nil, c.gone)
			v.Version, v.Epoch, v.Outlived = c.seen, c.epoch, foreignAt
			_, change, reason := DecideForeign(key, v, c.known, shown(live("A", "5"), nil), false)
			if change == nil || !change.Type.IsRemoval() {
				t.Fatalf("got %+v, %s; want a removal", change, reason)
			}
			complete(change, nil, c.known)
			if got := change.Object.ResourceVersion; got != c.version {
				t.Errorf("got version %q, want %q", got, c.version)
			}
		})
	}
}

// TestSyncFindsAnUnansweredPublishOfAnotherUID: two objects of a name were published in turn,
// both without an answer, and the first one was stored. Only the tombstone of the second was
// kept, so the delete of the first waited for the next refresh.
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
	b.acked, b.shown, b.rechecked = b.acked.Before(stored), stored, nil // a refresh finds it
	if again, err := syncOnce(t, f); !again || err != nil || b.acked != stored || len(b.rechecked) != 1 {
		t.Fatalf("got again %v, err %v, acked %+v, %d rechecks; want the event of ours and one recheck", again, err, b.acked, len(b.rechecked))
	}
}

// TestForeignCreateOfAnotherObject: the create of a former leader arrived after its object was
// gone. The delete that follows had no version. A claim that hides the live state isn't taken.
func TestForeignCreateOfAnotherObject(t *testing.T) {
	for name, c := range map[string]struct {
		live       *event.Object
		seen, want string
	}{
		"nothing is there":         {nil, "7", "5"},
		"a later object is there":  {object("C", "6"), "7", "5"},
		"it would hide the object": {object("C", "4"), "7", ""},
		"nobody has seen it":       {object("C", "6"), "4", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(c.live)
			v.Version, v.Outlived = c.seen, foreignAt
			stored := live("B", "5")
			stored.Deleted = c.live == nil
			adopt, _, _ := DecideForeign(key, v, foreign(deleted("A", "3")), shown(stored, nil), false)
			if adopt == nil || adopt.UID != "B" || adopt.ResourceVersion != c.want {
				t.Errorf("got %+v, want B in version %q", adopt, c.want)
			}
		})
	}
}

// TestSyncIsBehindAnother: of two forwarders without leader election, the other one published
// the delete of an object, and the create and the delete of the next one. One whose watch had
// not come to the next object took its delete for a forgery, answered it, and published the
// object again when its watch came to it.
func TestSyncIsBehindAnother(t *testing.T) {
	b := &bench{view: view(nil, tombstone("A", "6")), acked: foreign(live("A", "5")), shown: at(deleted("B", "8"), foreignAt)}
	b.view.Version, b.view.Outlived = "6", foreignAt
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
	b.view = view(object("B", "7"), tombstone("A", "6")) // the watch goes on
	sync(false, 1)
	b.view = view(nil, tombstone("A", "6"), tombstone("B", "8"))
	sync(false, 1)
	if got := counted(t, f); got != 0 {
		t.Errorf("%v foreign events are counted", got)
	}
}

// TestATruncatedEventOfAnother: another forwarder published an object that is too large for the
// bus. Its event has no content, so it once counted as a forgery. A forged one of an object that
// the bus takes is repaired.
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
			b.view.Outlived = foreignAt
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

// TestIsState compares an event on the bus with the live state as a whole: its data is of the
// group of the resource, and an object of any size that a watch accepts is compared.
func TestIsState(t *testing.T) {
	text := func(apiVersion, data string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"ConfigMap","metadata":{"name":"web","uid":"A","resourceVersion":"6"},"data":{"a":"` + data + `"}}`
	}
	large := strings.Repeat(`\u003c`, 1<<20) // as an API server writes 1 MiB of "<"
	for name, c := range map[string]struct {
		live, shown string
		want        bool
	}{
		"the live state":          {text("v1", "b"), text("v1", "b"), true},
		"of another version":      {text("v1", "b"), text("v2", "b"), true},
		"of another group":        {text("v1", "b"), text("evil.example/v1", "b"), false},
		"of no version":           {text("v1", "b"), text("a/b/c", "b"), false},
		"large":                   {text("v1", large), text("v1", large), true},
		"large, with other data":  {text("v1", large), text("v1", large+"b"), false},
		"the last of two members": {text("v1", "b"), strings.Replace(text("v1", "b"), `"data"`, `"data":{"a":"c"},"data"`, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(&event.Object{Namespace: key.Namespace, Name: key.Name, UID: "A", ResourceVersion: "6", Body: event.JSON([]byte(c.live)), Digest: event.Digest{1}})
			m := &event.Message{Data: []byte(c.shown), Attributes: []event.Attribute{{Name: "uid", Value: "A"}, {Name: "resourceversion", Value: "6"}}}
			s := publish.Stored{Acked: live("A", "6")}
			if err := s.Read(m); err != nil {
				t.Fatal(err)
			}
			if got := isState(v, s); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
