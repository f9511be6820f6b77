package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
)

// foreignAt is the position of the foreign event in these tests.
const foreignAt = 9

func foreign(known event.Acked) event.Acked {
	return known.Before(event.Acked{Position: foreignAt})
}

func shown(a event.Acked, o *event.Object) event.Stored {
	return event.Stored{Acked: at(a, foreignAt), Object: o}
}

// TestAttemptWithUnconfirmedData verifies that an event with the attributes of an attempt keeps its digest only if
// its data is known to have that digest. Otherwise the forwarder would skip a later state with the same digest, and
// forged data would stay on the bus (found by the simulator).
func TestAttemptWithUnconfirmedData(t *testing.T) {
	projected, err := decode.DigestOf(event.JSON([]byte(`{"of":"A"}`)))
	if err != nil || !projected.Projected() {
		t.Fatalf("%v, %v", projected, err)
	}
	with := func(version string, d event.Digest, body string) *event.Object {
		o := whole("A", version, 1)
		o.Digest, o.Body = d, event.JSON([]byte(body))
		return o
	}
	text := whole("A", "5", 1).Digest
	for name, c := range map[string]struct {
		live, shown *event.Object
		digest      event.Digest // in the attributes
		kept        bool
	}{
		"projected":                     {nil, with("5", projected, `{"of":"A"}`), projected, true},
		"projected, forged":             {nil, with("5", projected, `{"of":"B"}`), projected, false},
		"projected, without data":       {nil, nil, projected, false},
		"projected, forged, and live":   {with("6", projected, `{"of":"A"}`), with("5", projected, `{"of":"B"}`), projected, false},
		"a text, and nothing is live":   {nil, with("5", text, `{"of":"A"}`), text, false},
		"a text, and live":              {with("6", text, `{"of":"A"}`), with("5", text, `{"of":"A"}`), text, true},
		"a text, forged, and live":      {with("6", text, `{"of":"A"}`), with("5", text, `{"of":"B"}`), text, false},
		"a text, and another text live": {with("6", event.Digest{9}, `{"of":"A"}`), with("5", text, `{"of":"A"}`), text, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := live("A", "5")
			a.Digest = c.digest
			adopted, _, _ := DecideForeign(testKey, view(c.live), foreign(live("A", "4")), shown(a, c.shown), true)
			if adopted == nil || adopted.ResourceVersion != "5" || (adopted.Digest == c.digest) != c.kept || !c.kept && !adopted.Digest.None() {
				t.Errorf("adopted %+v, want the digest kept: %t", adopted, c.kept)
			}
		})
	}
}

func TestDecideForeign(t *testing.T) {
	const ask, adopt = "ask", "adopt "
	forged := whole("A", "5", 1)
	forged.Body = event.JSON([]byte(`{"of":"B"}`))
	copied := live("A", "5")
	copied.Digest = forged.Digest
	for name, c := range map[string]struct {
		live      *event.Object
		gone      []event.Tombstone
		known     event.Acked
		shown     event.Stored
		ours      bool
		epoch     uint16 // of the informers
		confirmed bool   // by a consistent read
		want      string // the ID of a repair, the version of an adopted entry, or ask
	}{
		"an attempt of ours":                          {live: whole("A", "6", 1), known: live("A", "4"), shown: shown(live("A", "5"), nil), ours: true, want: adopt + "5"},
		"an attempt of ours with the live state":      {live: whole("A", "5", 1), known: live("A", "4"), shown: shown(live("A", "5"), whole("A", "5", 1)), ours: true, want: adopt + "5"},
		"a copy of an attempt with other data":        {live: whole("A", "5", 1), known: live("A", "4"), shown: shown(copied, forged), ours: true, confirmed: true, want: "updated A.5.repaired.9"},
		"the live state":                              {live: whole("A", "5", 1), known: live("A", "4"), shown: shown(live("A", "5"), whole("A", "5", 1)), want: adopt + "5"},
		"a copy of ours":                              {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "5"), whole("A", "5", 1)), want: adopt + "5"},
		"a state in between":                          {live: whole("A", "6", 1), known: live("A", "4"), shown: shown(live("A", "5"), nil), want: adopt + "5"},
		"created, and then updated by another":        {live: whole("A", "6", 1), known: deleted("B", "4"), shown: shown(live("A", "5"), nil), want: adopt + "5"},
		"deselected by another, and selected":         {live: whole("A", "6", 1), known: live("A", "5"), shown: shown(deselected("A", "5"), nil), want: adopt + "5"},
		"updated by another, and deleted":             {gone: []event.Tombstone{tombstone("A", "8")}, known: live("A", "5"), shown: shown(live("A", "6"), nil), want: adopt + "6"},
		"projected by another, and deleted":           {gone: []event.Tombstone{tombstone("A", "8")}, known: live("A", "5"), shown: shown(copied, nil), want: adopt + "5"},
		"recreated by another, and deleted":           {gone: []event.Tombstone{tombstone("A", "6"), tombstone("B", "8")}, known: live("A", "5"), shown: shown(live("B", "7"), nil), want: adopt + "7"},
		"deleted by another, and recreated":           {live: whole("B", "7", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("A", "6"), nil), want: adopt + "6"},
		"recreated by another, before a new default":  {live: whole("B", "7", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(live("B", "7"), forged), want: adopt + "7"},
		"created by another, before a new default":    {live: whole("B", "7", 1), known: deleted("A", "5"), shown: shown(live("B", "7"), forged), want: ask},
		"created by another, and a tombstone is left": {live: whole("B", "7", 1), gone: []event.Tombstone{tombstone("A", "5")}, known: deleted("A", "5"), shown: shown(live("B", "7"), forged), want: ask},
		"recreated by another, and no proof":          {live: whole("B", "7", 1), known: live("A", "5"), shown: shown(live("B", "7"), forged), want: ask},
		"created by another, and recreated":           {live: whole("C", "9", 1), known: deleted("A", "5"), shown: shown(live("B", "7"), nil), want: adopt},
		"deleted by another twice, and recreated":     {live: whole("C", "9", 1), known: deleted("A", "5"), shown: shown(deleted("B", "8"), nil), want: adopt},
		"deleted by another, came and went":           {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "8"), nil), want: adopt},
		"deleted by another, inferred, and one more":  {gone: []event.Tombstone{{UID: "A", Confirmed: true, Contradicts: 1}}, known: live("A", "5"), shown: shown(deleted("B", "8"), nil), confirmed: true, want: adopt},
		"deselected by another, came and went":        {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deselected("B", "8"), nil), want: adopt},
		"deleted by another, and one more":            {live: whole("C", "9", 1), gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("B", "8"), nil), want: adopt},
		"one of an unknown object, and updated":       {live: whole("A", "6", 1), known: live("A", ""), shown: shown(live("A", "5"), nil), want: adopt + "5"},
		"nothing of an unknown object, and it is":     {live: whole("A", "6", 1), known: event.Acked{}, shown: shown(event.Acked{}, nil), want: adopt},
		"before history went back":                    {live: whole("A", "4", 1), epoch: 1, known: deleted("A", "5"), shown: shown(deleted("B", "7"), nil), want: adopt + "7"},
		"deleted by another":                          {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(deleted("A", "6"), nil), want: adopt + "6"},
		"deleted by another, with its last version":   {gone: []event.Tombstone{{UID: "A", Object: withData(whole("A", "6", 1), "6"), Observed: time.Unix(1, 0)}}, known: live("A", "5"), shown: shown(deleted("A", "5"), withData(whole("A", "5", 1), "5")), want: adopt + "6"},
		"deleted twice":                               {known: deleted("A", "5"), shown: shown(deleted("A", "999"), nil), want: adopt + "5"},
		"nothing of an object that never was":         {known: event.Acked{}, shown: shown(event.Acked{}, nil), want: adopt},
		"the known version, and one without change":   {live: whole("A", "6", 1), known: live("A", "5"), shown: shown(live("A", "5"), forged), want: ask},
		"its delete, and one without change":          {live: whole("A", "6", 1), known: live("A", "5"), shown: shown(deleted("A", "5"), forged), want: ask},
		"the known version, since history went back":  {live: whole("A", "5", 1), epoch: 1, known: live("A", "5"), shown: shown(deleted("A", "5"), nil), want: ask},
		"another state, before the read":              {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "5"), forged), want: ask},
		"a later state, before the read":              {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(live("A", "999"), nil), want: ask},
		"a delete, before the read":                   {live: whole("A", "5", 1), known: live("A", "5"), shown: shown(deleted("A", "5"), nil), want: ask},
		"a recreated object, before the watch":        {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(live("B", "7"), nil), want: ask},
		"a state, and it is deleted, before":          {gone: []event.Tombstone{tombstone("A", "6")}, known: live("A", "5"), shown: shown(live("A", "999"), nil), want: ask},
		"an object that was gone, before the read":    {known: deleted("A", "5"), shown: shown(live("B", "6"), nil), want: ask},

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
				v.Outlived.Position = foreignAt
			}
			is, change, reason := DecideForeign(testKey, v, acked, c.shown, c.ours)
			got := string(reason)
			switch {
			case is != nil && (is.Foreign || is.Position != foreignAt || change != nil):
				t.Fatalf("adopted %+v", is)
			case is != nil:
				got = adopt + is.ResourceVersion
			case change != nil:
				change.Key, change.Resource = testKey, testResource
				_, _ = Complete(change, nil, acked)
				m, err := event.Builder{Cluster: "c"}.Message(*change)
				if err != nil {
					t.Fatal(err)
				}
				if m.Acked.Epoch != 0 || m.Acked.ResourceVersion == "999" {
					t.Errorf("the repair has the forged values %+v", m.Acked)
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

// TestACopyOfAnAttemptWithOtherData verifies that a copy of an attempt with other data is corrected.
// A foreign writer can copy the digest, because it is public and equal for all versions of an object
// that differ only in unpublished fields.
func TestACopyOfAnAttemptWithOtherData(t *testing.T) {
	body := func(of string) event.Body { return event.JSON([]byte(`{"of":"` + of + `"}`)) }
	digest, err := decode.DigestOf(body("A"))
	if err != nil {
		t.Fatal(err)
	}
	now, attempt := whole("A", "6", 1), live("A", "5")
	now.Body, now.Digest, attempt.Digest = body("A"), digest, digest
	for of, want := range map[string]Reason{"A": ReasonUnchanged, "B": ReasonUpdated} {
		stored := *now
		stored.ResourceVersion, stored.Body = "5", body(of)
		is, _, _ := DecideForeign(testKey, view(now), foreign(live("A", "4")), shown(attempt, &stored), true)
		if is == nil {
			t.Fatal("an attempt is not adopted")
		}
		if _, reason := decide(view(now), *is, ""); reason != want {
			t.Errorf("after an attempt with the data of %s: %s, want %s", of, reason, want)
		}
	}
}

// TestARemovalBeforeTheEnd verifies that a removal by another forwarder is accepted even if it
// contains an earlier state of the object than the last one. The other forwarder may have deselected
// the object before the object was deleted, or may have missed the object's last change. An earlier
// version treated such a removal as forged, because its data was not the last state.
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
			v.Outlived.Position = foreignAt
			adopt, change, reason := DecideForeign(testKey, v, foreign(of(live("A", "5"), c.known)), shown(c.shown, c.data), false)
			if got := adopt != nil && adopt.Deleted; got != c.want || got == (change != nil) {
				t.Errorf("got %+v, %+v, %s; want it adopted: %v", adopt, change, reason, c.want)
			}
		})
	}
}

// TestForeignRemovalIsNotBeforeTheEvent verifies that a delete that repairs a late message from a
// former leader does not sort before that message. Before the fix, the delete had an earlier
// resourceVersion or none, so subscribers that sort events dropped it.
func TestForeignRemovalIsNotBeforeTheEvent(t *testing.T) {
	unknown := event.Acked{}.Before(at(live("A", "5"), foreignAt))
	confirmed := event.Tombstone{UID: "A", Confirmed: true, Contradicts: 1, Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}
	gone := tombstone("A", "4")
	gone.Confirmed, gone.Contradicts = true, 1
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
		"the event is of another object":  {foreign(live("B", "4")), event.Tombstone{UID: "B", Confirmed: true, Contradicts: 1}, "7", 0, "4"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(nil, c.gone)
			v.Version, v.Reported, v.Epoch, v.Outlived.Position = c.seen, c.seen, c.epoch, foreignAt
			_, change, reason := DecideForeign(testKey, v, c.known, shown(live("A", "5"), nil), false)
			if change == nil || !change.Type.IsRemoval() {
				t.Fatalf("got %+v, %s; want a removal", change, reason)
			}
			_, _ = Complete(change, nil, c.known)
			if got := change.Object.ResourceVersion; got != c.version {
				t.Errorf("got version %q, want %q", got, c.version)
			}
		})
	}
}

// TestDecideForeignWaitsForTheWatch verifies that the decision about an event in a version that the
// watch has not seen waits for the watch, unless the version is later than the consistent read. Before
// the fix, a forwarder whose watch was behind treated another forwarder's create of a short-lived
// object as forged, and published a delete of the object.
func TestDecideForeignWaitsForTheWatch(t *testing.T) {
	for name, c := range map[string]struct {
		known, shown event.Acked
		stored       string // the version of the indexer
		reported     string
		read         string // the version of the consistent read
		waits        bool
	}{
		"behind the create":                 {deleted("A", "3"), live("B", "5"), "4", "4", "7", true},
		"at the version of the read":        {deleted("A", "3"), live("B", "7"), "4", "4", "7", true},
		"behind a delete, an object before": {live("A", "3"), deleted("B", "5"), "4", "4", "7", true},
		"nothing is reported yet":           {deleted("A", "3"), live("B", "5"), "6", "", "7", true},
		"the create is not reported yet":    {deleted("A", "3"), live("B", "5"), "6", "4", "7", true},
		"the delete is not reported yet":    {deleted("A", "3"), live("B", "5"), "6", "5", "7", true},
		"no informer shows the key":         {deleted("A", "3"), live("B", "5"), "", "", "7", false},
		"all is reported":                   {deleted("A", "3"), live("B", "5"), "6", "6", "7", false},
		"the version follows the read":      {deleted("A", "3"), live("B", "9"), "4", "4", "7", false},
		"the read found an object":          {deleted("A", "3"), live("B", "5"), "4", "4", "", false},
		"and the handler is behind":         {deleted("A", "3"), live("B", "5"), "6", "4", "", true},
		"in another epoch":                  {deleted("A", "3"), withEpoch(live("B", "5"), 1), "4", "4", "7", false},
		"without a version":                 {deleted("A", "3"), live("B", ""), "4", "4", "7", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(nil)
			v.Version, v.Reported, v.Outlived = c.stored, c.reported, event.Outlived{Position: foreignAt, AbsentAt: c.read}
			adopt, change, reason := DecideForeign(testKey, v, foreign(c.known), shown(c.shown, nil), false)
			if waits := reason == ReasonUnseen; waits != c.waits || waits && (adopt != nil || change != nil) {
				t.Errorf("got %+v, %+v, %s; want to wait: %t", adopt, change, reason, c.waits)
			}
		})
	}
}

// TestRepairOfAnUnselectedObject verifies that a deselected event repairs a foreign event if the object
// may exist without being selected. Before the fix, a delete repaired it.
func TestRepairOfAnUnselectedObject(t *testing.T) {
	for unselected, want := range map[bool]event.Type{true: event.Deselected, false: event.Deleted} {
		v := view(nil)
		v.Outlived = event.Outlived{Position: foreignAt, Unselected: unselected}
		_, change, reason := DecideForeign(testKey, v, foreign(deleted("A", "5")), shown(live("B", "7"), nil), false)
		if change == nil || change.Type != want || change.Object.UID != "B" {
			t.Errorf("got %+v, %s; want %s of B", change, reason, want)
		}
	}
}

// TestDecideForeignWithAStaleObject verifies that a forwarder never publishes a live state from before a
// consistent read that found no object. Before the fix, a forwarder whose watch was more than 3 minutes
// behind published the state of a deleted object after another forwarder's event of the next one.
func TestDecideForeignWithAStaleObject(t *testing.T) {
	for name, c := range map[string]struct {
		absentAt string
		want     string // of the repair
	}{
		"from before the read": {"7", ""},
		"of the read":          {"6", ""},
		"from after the read":  {"5", "updated A.6"},
		"the read found it":    {"", "updated A.6"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(whole("A", "6", 1))
			v.Waited, v.Outlived = true, event.Outlived{Position: foreignAt, AbsentAt: c.absentAt}
			_, change, reason := DecideForeign(testKey, v, foreign(live("A", "4")), shown(live("B", "5"), nil), false)
			got := ""
			if change != nil {
				got = change.Type.Short() + " " + string(change.Object.UID) + "." + change.Object.ResourceVersion
			}
			if got != c.want {
				t.Errorf("got %q, %s; want %q", got, reason, c.want)
			}
		})
	}
}

// TestIsState verifies that isState compares the whole data of an event on the bus with the live
// state, including the API group. It compares objects of any size that a watch accepts.
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
			v := view(&event.Object{Namespace: testKey.Namespace, Name: testKey.Name, UID: "A", ResourceVersion: "6", Body: event.JSON([]byte(c.live)), Digest: event.Digest{1}})
			m := &event.Message{Data: []byte(c.shown), Attributes: []event.Attribute{{Name: "uid", Value: "A"}, {Name: "resourceversion", Value: "6"}}}
			s := event.Stored{Acked: live("A", "6")}
			if err := s.Read(m); err != nil {
				t.Fatal(err)
			}
			if got := isState(v, s); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestForeignCreateOfAnotherObject verifies which resourceVersion the adopted entry has if a former
// leader's create arrives after its object is gone. Before the fix, the delete that followed had no
// resourceVersion or, if the object had been deselected, an earlier one. The entry must not have a
// resourceVersion that would hide the live state.
func TestForeignCreateOfAnotherObject(t *testing.T) {
	for name, c := range map[string]struct {
		known      event.Acked
		live       *event.Object
		seen, want string
	}{
		"nothing is there":         {deleted("A", "3"), nil, "7", "5"},
		"a later object is there":  {deleted("A", "3"), object("C", "6"), "7", "5"},
		"it would hide the object": {deleted("A", "3"), object("C", "4"), "7", ""},
		"nobody has seen it":       {deleted("A", "3"), object("C", "6"), "4", ""},
		"deselected before":        {deselected("B", "3"), object("C", "6"), "7", "5"},
		"deselected later":         {deselected("B", "6"), object("C", "8"), "7", "6"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(c.live)
			v.Version, v.Reported, v.Outlived.Position = c.seen, c.seen, foreignAt
			stored := live("B", "5")
			stored.Deleted = c.live == nil
			adopt, _, _ := DecideForeign(testKey, v, foreign(c.known), shown(stored, nil), false)
			if adopt == nil || adopt.UID != "B" || adopt.ResourceVersion != c.want {
				t.Errorf("got %+v, want B in version %q", adopt, c.want)
			}
		})
	}
}

// TestConflictInTheVersionOfTheChange verifies that an event in the version of the refused change
// stays foreign. The event can be an attempt or a copy with other data, and only its data shows
// which.
func TestConflictInTheVersionOfTheChange(t *testing.T) {
	c := event.Change{Type: event.Updated, Object: whole("A", "5", 1)}
	for name, known := range map[string]event.Acked{"a known object": live("A", "4"), "an unknown object": {}} {
		bus := live("A", "5")
		bus.Position = 12
		if is := afterConflict(c, known, bus, false, nil); !is.Foreign || is.Position != 12 {
			t.Errorf("%s: got %+v, want a foreign entry at 12", name, is)
		}
	}
}
