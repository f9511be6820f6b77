package ledger

import (
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/ledgertest"
)

// Objects and events for the tests.
var (
	object         = ledgertest.Object
	live           = ledgertest.Live
	projected      = ledgertest.Projected
	whole          = ledgertest.Whole
	wholeAcked     = ledgertest.WholeAcked
	projectedAcked = ledgertest.ProjectedAcked
	deleted        = ledgertest.Deleted
	tombstone      = ledgertest.Tombstone
	deselected     = ledgertest.Deselected
	unselected     = ledgertest.Unselected
	at             = ledgertest.At
	withEpoch      = ledgertest.WithEpoch
	withData       = ledgertest.WithData
	sent           = ledgertest.Sent
	withDigest     = ledgertest.WithDigest
)

func view(o *event.Object, tombstones ...event.Tombstone) event.View {
	return event.View{Resource: testResource, Live: o, Tombstones: tombstones, Cause: event.CauseWatch, Observed: time.Unix(100, 0)}
}

// TestDecide has a case for each row of the decision table, and for each way to confuse two rows.
func TestDecide(t *testing.T) {
	type want struct {
		reason   Reason
		typ      event.Type // "" for no change
		uid      string     // of the published object, "" if only the bus has it
		version  string
		previous string
	}
	for name, c := range map[string]struct {
		view      event.View
		acked     event.Acked
		attempted string
		want      want
	}{
		"gone, bus live, tombstone: deleted": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "12", "10"},
		},
		"gone, bus live, no tombstone: a missing object is no proof": {
			acked: live("A", "10"),
			want:  want{reason: ReasonAwait},
		},
		"gone, bus live, tombstone of another UID only": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("B", "12")}},
			acked: live("A", "10"),
			want:  want{reason: ReasonAwait},
		},
		"gone, bus empty: created and deleted before it was ever published": {
			view: event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}},
			want: want{reason: ReasonGone},
		},
		"gone, bus deleted": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked: deleted("A", "12"),
			want:  want{reason: ReasonGone},
		},
		"gone, bus live in a later version than the watch showed: the state of the bus": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "9")}, Version: "10"},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "", "", "10"},
		},
		"gone, bus live in a later version of an earlier epoch: the state of the watch": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "9")}, Epoch: 1},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "9", "10"},
		},
		"gone, bus live in a later epoch: the watch still shows the state before the restore": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked: event.Acked{UID: "A", ResourceVersion: "10", Epoch: 1, Position: 7},
			want:  want{ReasonStale, "", "", "", ""},
		},
		"gone, create without an answer: create published once more": {
			view:      event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}},
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", ""},
		},
		"gone, create without an answer after the delete of another UID": {
			view:      event.View{Tombstones: []event.Tombstone{tombstone("B", "22")}},
			acked:     deleted("A", "12"),
			attempted: "B",
			want:      want{ReasonUncertain, event.Created, "B", "22", ""},
		},
		"recreated, first create without an answer": {
			view:      event.View{Live: object("B", "20"), Tombstones: []event.Tombstone{tombstone("A", "12")}},
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", ""},
		},
		"deselected, create after reselection without an answer: create published once more": {
			view:      event.View{Tombstones: []event.Tombstone{unselected("A", "12")}},
			acked:     deselected("A", "12"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", "12"},
		},
		"unknown, create without an answer: create published once more": {
			view:      event.View{Unanswered: &event.Change{Type: event.Snapshot, Object: object("A", "12")}},
			attempted: "A",
			want:      want{ReasonUncertain, event.Snapshot, "A", "12", ""},
		},
		"gone, create without an answer, the last state is unknown: create published once more": {
			view:      event.View{Unanswered: &event.Change{Type: event.Created, Object: object("A", "12")}, Tombstones: []event.Tombstone{{UID: "A"}}},
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", ""},
		},
		"gone again, the tombstone is older than the bus: create published once more": {
			view:      event.View{Unanswered: &event.Change{Type: event.Created, Object: object("A", "12")}, Tombstones: []event.Tombstone{unselected("A", "9")}},
			acked:     deselected("A", "11"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", ""},
		},
		"gone again, the bus is in an earlier epoch: the last state": {
			view:      event.View{Unanswered: &event.Change{Type: event.Created, Object: object("A", "12")}, Tombstones: []event.Tombstone{unselected("A", "9")}, Epoch: 1},
			acked:     deselected("A", "11"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "9", "11"},
		},
		"unknown, update without an answer, and the bus no longer shows the object: created again": {
			view:      event.View{Unanswered: &event.Change{Type: event.Updated, Object: object("A", "12"), Before: object("A", "11"), Previous: "11"}},
			acked:     deleted("B", "9"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", ""},
		},
		"unknown, update without an answer, and the bus deselects the object: created again": {
			view:      event.View{Unanswered: &event.Change{Type: event.Updated, Object: object("A", "12"), Previous: "11"}},
			acked:     deselected("A", "9"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", "9"},
		},
		"live, create without an answer: retried": {
			view:      event.View{Live: object("A", "12")},
			attempted: "A",
			want:      want{ReasonCreated, event.Created, "A", "12", ""},
		},
		"live and on the bus, removal or other content without an answer: published once more": {
			view:      event.View{Live: object("A", "12")},
			acked:     live("A", "12"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Updated, "A", "12", "12"},
		},
		"live, bus empty: created": {
			view: event.View{Live: object("B", "20")},
			want: want{ReasonCreated, event.Created, "B", "20", ""},
		},
		"live, bus empty, an owner is not known yet": {
			view: event.View{Live: object("B", "20"), Hold: true},
			want: want{reason: ReasonHold},
		},
		"later version, an owner is not known yet": {
			view:  event.View{Live: object("A", "11"), Hold: true},
			acked: live("A", "10"),
			want:  want{reason: ReasonHold},
		},
		"recreated, an owner is not known yet: the delete does not wait": {
			view:  event.View{Live: object("B", "20"), Hold: true, Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "12", "10"},
		},
		"live, bus empty, first sync: snapshot": {
			view: event.View{Live: object("B", "20"), FirstSync: true},
			want: want{ReasonCreated, event.Snapshot, "B", "20", ""},
		},
		"live, bus has its delete in a version that is not trusted: ask": {
			view:  event.View{Live: object("A", "12")},
			acked: deleted("A", ""),
			want:  want{reason: ReasonDenied},
		},
		"live, bus has its delete in a version and an epoch that are not trusted: ask": {
			view:  event.View{Live: object("A", "12"), Epoch: 1},
			acked: deselected("A", ""),
			want:  want{reason: ReasonDenied},
		},
		"live, and outlived a delete in a version that is not trusted: created": {
			view:  event.View{Live: object("A", "12"), Outlived: event.Outlived{Position: 8}},
			acked: deleted("A", ""),
			want:  want{ReasonCreated, event.Created, "A", "12", ""},
		},
		"live, bus has another UID deleted, in a version that is not trusted: created": {
			view:  event.View{Live: object("B", "12"), Epoch: 1},
			acked: deleted("A", ""),
			want:  want{ReasonCreated, event.Created, "B", "12", ""},
		},
		"live, bus has another UID deleted: created without a previous version": {
			view:  event.View{Live: object("B", "20")},
			acked: deleted("A", "12"),
			want:  want{ReasonCreated, event.Created, "B", "20", ""},
		},
		"recreated, tombstone: first the delete of the old UID": {
			view:  event.View{Live: object("B", "20"), Tombstones: []event.Tombstone{tombstone("A", "19")}},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "19", "10"},
		},
		"recreated, no tombstone yet: never an update across UIDs": {
			view:  event.View{Live: object("B", "20")},
			acked: live("A", "10"),
			want:  want{reason: ReasonAwait},
		},
		"recreated and deleted again, bus knows the first: its delete": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("B", "21"), tombstone("A", "19")}},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "19", "10"},
		},
		"a removal of an unknown version, and a read found no object": {
			view:  event.View{Live: object("B", "7"), Outlived: event.Outlived{Position: 5, AbsentAt: "8"}},
			acked: event.Acked{UID: "B", Deleted: true, Position: 5},
			want:  want{reason: ReasonDenied},
		},
		"same version: nothing": {
			view:  event.View{Live: object("A", "10")},
			acked: live("A", "10"),
			want:  want{reason: ReasonUnchanged},
		},
		"same version, another projection": {
			view:  event.View{Live: projected("A", "10", 1)},
			acked: projectedAcked("A", "10", 2),
			want:  want{ReasonProjected, event.Updated, "A", "10", "10"},
		},
		"same version and text": {
			view:  event.View{Live: whole("A", "10", 1)},
			acked: wholeAcked("A", "10", 1),
			want:  want{reason: ReasonUnchanged},
		},
		"same version, another text": {
			view:  event.View{Live: whole("A", "10", 1)},
			acked: wholeAcked("A", "10", 2),
			want:  want{ReasonProjected, event.Updated, "A", "10", "10"},
		},
		"same version, no digest from an older forwarder": {
			view:  event.View{Live: whole("A", "10", 1)},
			acked: live("A", "10"),
			want:  want{ReasonProjected, event.Updated, "A", "10", "10"},
		},
		"same version, another text, restore not noticed yet": {
			view:  event.View{Live: whole("A", "10", 1)},
			acked: event.Acked{UID: "A", ResourceVersion: "10", Epoch: 1, Digest: event.Digest{2}},
			want:  want{reason: ReasonStale},
		},
		"later version, equal digest of the text by chance or on purpose": {
			view:  event.View{Live: whole("A", "11", 1)},
			acked: wholeAcked("A", "10", 1),
			want:  want{ReasonUpdated, event.Updated, "A", "11", "10"},
		},
		"same version, projected now": {
			view:  event.View{Live: projected("A", "10", 1)},
			acked: live("A", "10"),
			want:  want{ReasonProjected, event.Updated, "A", "10", "10"},
		},
		"same version, no longer projected": {
			view:  event.View{Live: object("A", "10")},
			acked: projectedAcked("A", "10", 2),
			want:  want{ReasonProjected, event.Updated, "A", "10", "10"},
		},
		"same version, another projection, restore not noticed yet": {
			view:  event.View{Live: projected("A", "10", 1)},
			acked: event.Acked{UID: "A", ResourceVersion: "10", Epoch: 1, Digest: event.Digest{15: 2}},
			want:  want{reason: ReasonStale},
		},
		"same version and content": {
			view:  event.View{Live: projected("A", "10", 1)},
			acked: projectedAcked("A", "10", 1),
			want:  want{reason: ReasonUnchanged},
		},
		"later version, only unpublished fields changed: nothing": {
			view:  event.View{Live: projected("A", "11", 1)},
			acked: projectedAcked("A", "10", 1),
			want:  want{reason: ReasonUnchanged},
		},
		"later version, published fields changed too": {
			view:  event.View{Live: projected("A", "11", 2)},
			acked: projectedAcked("A", "10", 1),
			want:  want{ReasonUpdated, event.Updated, "A", "11", "10"},
		},
		"same content in a later epoch: the versions are not comparable": {
			view:  event.View{Live: projected("A", "9", 1), Epoch: 1},
			acked: projectedAcked("A", "10", 1),
			want:  want{ReasonUpdated, event.Updated, "A", "9", "10"},
		},
		"same content in an earlier version: our watch is behind": {
			view:  event.View{Live: projected("A", "9", 1)},
			acked: projectedAcked("A", "10", 1),
			want:  want{reason: ReasonStale},
		},
		"same content as at its delete: selected again": {
			view:  event.View{Live: projected("A", "15", 1)},
			acked: event.Acked{UID: "A", ResourceVersion: "12", Deleted: true, Digest: event.Digest{15: 1}},
			want:  want{ReasonCreated, event.Created, "A", "15", "12"},
		},
		"same content under another UID: first the delete": {
			view:  event.View{Live: projected("B", "15", 1), Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked: projectedAcked("A", "10", 1),
			want:  want{ReasonDeleted, event.Deleted, "A", "12", "10"},
		},
		"another version in the last epoch: there is no order": {
			view:  event.View{Live: object("A", "9"), Epoch: event.LastEpoch},
			acked: event.Acked{UID: "A", ResourceVersion: "10", Epoch: event.LastEpoch},
			want:  want{ReasonUpdated, event.Updated, "A", "9", "10"},
		},
		"later version: updated": {
			view:  event.View{Live: object("A", "11")},
			acked: live("A", "10"),
			want:  want{ReasonUpdated, event.Updated, "A", "11", "10"},
		},
		"later version with one digit more: numbers, not text": {
			view:  event.View{Live: object("A", "100")},
			acked: live("A", "99"),
			want:  want{ReasonUpdated, event.Updated, "A", "100", "99"},
		},
		"later version during a first sync that began twice: updated, not snapshot": {
			view:  event.View{Live: object("A", "11"), FirstSync: true},
			acked: live("A", "10"),
			want:  want{ReasonUpdated, event.Updated, "A", "11", "10"},
		},
		"earlier version: our watch is behind another writer": {
			view:  event.View{Live: object("A", "9")},
			acked: live("A", "10"),
			want:  want{reason: ReasonStale},
		},
		"earlier version in a later epoch: etcd was restored": {
			view:  event.View{Live: object("A", "9"), Epoch: 1},
			acked: live("A", "10"),
			want:  want{ReasonUpdated, event.Updated, "A", "9", "10"},
		},
		"later version in an earlier epoch: restore not noticed yet": {
			view:  event.View{Live: object("A", "11")},
			acked: event.Acked{UID: "A", ResourceVersion: "10", Epoch: 1},
			want:  want{reason: ReasonStale},
		},
		"same version in a later epoch: untouched by the restore": {
			view:  event.View{Live: object("A", "10"), Epoch: 1},
			acked: live("A", "10"),
			want:  want{reason: ReasonUnchanged},
		},
		"a deleted UID in an earlier version: our watch is behind the delete": {
			view:  event.View{Live: object("A", "10")},
			acked: deleted("A", "12"),
			want:  want{reason: ReasonStale},
		},
		"a deleted UID in a later version: selected again": {
			view:  event.View{Live: object("A", "15")},
			acked: deleted("A", "12"),
			want:  want{ReasonCreated, event.Created, "A", "15", "12"},
		},
		"a deleted UID in the version of its delete: a consistent read decides": {
			view:  event.View{Live: object("A", "12")},
			acked: deleted("A", "12"),
			want:  want{reason: ReasonDenied},
		},
		"a deleted UID in the version of its delete, which it outlived": {
			view:  event.View{Live: object("A", "12"), Outlived: event.Outlived{Position: 8}},
			acked: deleted("A", "12"),
			want:  want{ReasonCreated, event.Created, "A", "12", "12"},
		},
		"a deleted UID in the version of its delete, and it outlived an earlier one": {
			view:  event.View{Live: object("A", "12"), Outlived: event.Outlived{Position: 5}},
			acked: deleted("A", "12"),
			want:  want{reason: ReasonDenied},
		},
		"a deleted UID before the version of its delete, of which nothing was read": {
			view:  event.View{Live: object("A", "11"), Outlived: event.Outlived{Position: 8}},
			acked: deleted("A", "12"),
			want:  want{reason: ReasonStale},
		},
		"a deleted UID in the version of its delete, in a later epoch": {
			view:  event.View{Live: object("A", "12"), Epoch: 1},
			acked: deleted("A", "12"),
			want:  want{ReasonCreated, event.Created, "A", "12", "12"},
		},
		"a deleted UID in the version of its delete, which is no number": {
			view:  event.View{Live: object("A", "x")},
			acked: deleted("A", "x"),
			want:  want{reason: ReasonDenied},
		},
		"another UID in the version of the delete, which it outlived": {
			view:  event.View{Live: object("B", "12"), Outlived: event.Outlived{Position: 8}},
			acked: deleted("A", "12"),
			want:  want{ReasonCreated, event.Created, "B", "12", ""},
		},
		"gone, that it outlived its delete was never answered: it is made certain first": {
			view:      event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked:     deleted("A", "12"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", "12"},
		},
		"another UID older than the bus's delete: our watch is behind": {
			view:  event.View{Live: object("A", "10")},
			acked: deleted("B", "12"),
			want:  want{reason: ReasonStale},
		},
		"unselected, bus live: deselected": {
			view:  event.View{Tombstones: []event.Tombstone{unselected("A", "12")}},
			acked: live("A", "10"),
			want:  want{ReasonDeselected, event.Deselected, "A", "12", "10"},
		},
		"unselected, only the bus knows its state": {
			view:  event.View{Tombstones: []event.Tombstone{{UID: "A", Deselected: true, Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}}, Version: "10"},
			acked: live("A", "10"),
			want:  want{ReasonDeselected, event.Deselected, "", "", "10"},
		},
		"unselected, recreated: the old UID is deleted": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "12"), unselected("B", "20")}},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "12", "10"},
		},
		"unselected, bus deselected: nothing": {
			view:  event.View{Tombstones: []event.Tombstone{unselected("A", "12")}},
			acked: deselected("A", "12"),
			want:  want{reason: ReasonGone},
		},
		"selected again, unchanged: created": {
			view:  event.View{Live: object("A", "12")},
			acked: deselected("A", "12"),
			want:  want{ReasonCreated, event.Created, "A", "12", "12"},
		},
		"another UID in the version of a deselection: a read decides": {
			view:  event.View{Live: object("B", "12")},
			acked: deselected("A", "12"),
			want:  want{reason: ReasonDenied},
		},
		"another UID that outlived a delete in its version: no version before it": {
			view:  event.View{Live: object("B", "12"), Outlived: event.Outlived{Position: 7}},
			acked: event.Acked{UID: "A", ResourceVersion: "12", Deleted: true, Position: 7},
			want:  want{ReasonCreated, event.Created, "B", "12", ""},
		},
		"selected again, changed: created": {
			view:  event.View{Live: object("A", "15")},
			acked: deselected("A", "12"),
			want:  want{ReasonCreated, event.Created, "A", "15", "12"},
		},
		"selected again, our watch is behind": {
			view:  event.View{Live: object("A", "11")},
			acked: deselected("A", "12"),
			want:  want{reason: ReasonStale},
		},
		"selected again, unchanged, restore not noticed yet": {
			view:  event.View{Live: object("A", "12")},
			acked: event.Acked{UID: "A", ResourceVersion: "12", Epoch: 1, Deleted: true, Deselected: true},
			want:  want{reason: ReasonStale},
		},
		"versions that are no numbers: any other is later": {
			view:  event.View{Live: object("A", "x1")},
			acked: live("A", "x2"),
			want:  want{ReasonUpdated, event.Updated, "A", "x1", "x2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			change, reason := decide(c.view, c.acked, c.attempted)
			got := want{reason: reason}
			if change != nil {
				got = want{reason: reason, typ: change.Type, previous: change.Previous}
				if change.Object != nil {
					got.uid, got.version = string(change.Object.UID), change.Object.ResourceVersion
				}
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestDecideInferredDeleteHasNoObject(t *testing.T) {
	acked := live("A", "10")
	view := event.View{Tombstones: []event.Tombstone{{UID: "A", Confirmed: true, Contradicts: acked.Position, Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}}}
	change, _ := decide(view, acked, "")
	if change == nil || change.Object != nil || change.Cause != event.CauseReconcile {
		t.Errorf("got %+v, want a delete by reconciliation without an object", change)
	}

	// The delete takes its version and epoch from the last state on the bus. A new object of the
	// same name in the new epoch has a lower version, but is later.
	view.Epoch = 2
	acked.Epoch = 1
	if change, _ = decide(view, acked, ""); change.Epoch != 1 {
		t.Errorf("epoch is %d, want 1, that of the last state", change.Epoch)
	}
}

// TestDecideSetsAfter verifies that an object that is deselected and selected again in the same
// version gets a different event ID each time.
func TestDecideSetsAfter(t *testing.T) {
	out, _ := decide(event.View{Tombstones: []event.Tombstone{unselected("A", "12")}}, live("A", "12"), "")
	back, _ := decide(event.View{Live: object("A", "12")}, deselected("A", "12"), "")
	changed, _ := decide(event.View{Live: object("A", "13")}, deselected("A", "12"), "")
	unsure, _ := decide(event.View{Tombstones: []event.Tombstone{unselected("A", "12")}}, deselected("A", "12"), "A")
	if out.After != 7 || back.After != 8 || changed.After != 0 || unsure.After != 8 {
		t.Errorf("after %d, %d, %d and %d, want 7, 8, 0 and 8", out.After, back.After, changed.After, unsure.After)
	}
	outlived, _ := decide(event.View{Live: object("A", "12"), Outlived: event.Outlived{Position: 8}}, deleted("A", "12"), "")
	unsure, _ = decide(event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}}, deleted("A", "12"), "A")
	if outlived.After != 8 || unsure.After != 8 {
		t.Errorf("outlived a delete: after %d and %d, want 8 and 8", outlived.After, unsure.After)
	}
}

// TestDecideSetsBefore verifies that a change has a previous state only if the bus holds that state.
func TestDecideSetsBefore(t *testing.T) {
	for name, c := range map[string]struct {
		live, before *event.Object
		acked        event.Acked
		want         bool
	}{
		"it is":                          {object("A", "11"), object("A", "10"), live("A", "10"), true},
		"unknown":                        {object("A", "11"), nil, live("A", "10"), false},
		"the bus has an earlier one":     {object("A", "11"), object("A", "10"), live("A", "9"), false},
		"the bus has it as it is sent":   {projected("A", "11", 2), projected("A", "10", 1), projectedAcked("A", "10", 1), true},
		"the bus has the same, earlier":  {projected("A", "11", 2), projected("A", "10", 1), projectedAcked("A", "9", 1), false},
		"the bus has another part of it": {projected("A", "11", 2), projected("A", "10", 1), projectedAcked("A", "10", 3), false},
		"it is of another UID":           {object("A", "11"), object("B", "10"), live("A", "10"), false},
	} {
		t.Run(name, func(t *testing.T) {
			change, _ := decide(event.View{Live: c.live, Before: c.before}, c.acked, "")
			if change == nil || (change.Before != nil) != c.want {
				t.Errorf("got %+v, want a previous state: %v", change, c.want)
			}
		})
	}
	if change, _ := decide(event.View{Live: object("A", "11"), Before: object("A", "10")}, event.Acked{}, ""); change.Before != nil {
		t.Error("a create has a previous state")
	}
}

// TestDecideDeleteBehindTheBus verifies that a leader whose watch is behind the bus publishes no
// delete. In an earlier version, the watch of a new leader showed that an object had left the
// selection, although the previous leader had published a later state that was selected again. The
// new leader published a delete for an object that existed and was selected.
func TestDecideDeleteBehindTheBus(t *testing.T) {
	acked := at(live("A", "4"), 2)
	confirmed, earlier := tombstone("A", "3"), tombstone("A", "3")
	confirmed.Confirmed, earlier.Confirmed = true, true
	confirmed.Contradicts, earlier.Contradicts = acked.Position, acked.Position-1
	afterLoss := confirmed
	afterLoss.Contradicts = 0
	for name, c := range map[string]struct {
		gone    event.Tombstone
		lost    bool   // the bus has lost the event
		version string // of the indexer
		epoch   uint16
		want    Reason
	}{
		"behind the bus":                         {tombstone("A", "3"), false, "3", 0, ReasonStale},
		"deselected behind the bus":              {unselected("A", "3"), false, "3", 0, ReasonStale},
		"behind, and a read confirmed":           {confirmed, false, "3", 0, ReasonDeleted},
		"a read confirmed before the bus had it": {earlier, false, "3", 0, ReasonStale},
		"behind an event that is lost":           {tombstone("A", "3"), true, "3", 0, ReasonStale},
		"a read confirmed before the loss":       {confirmed, true, "3", 0, ReasonStale},
		"a read confirmed after the loss":        {afterLoss, true, "3", 0, ReasonDeleted},
		"as late as the bus":                     {tombstone("A", "3"), false, "4", 0, ReasonDeleted},
		"no informer, deleted before the event":  {tombstone("A", "3"), false, "", 0, ReasonStale},
		"no informer, deleted after the event":   {tombstone("A", "5"), false, "", 0, ReasonDeleted},
		"no informer, as late as the bus":        {tombstone("A", "4"), false, "", 0, ReasonDeleted},
		"no informer and no last state":          {event.Tombstone{UID: "A"}, false, "", 0, ReasonStale},
		"no informer, and a read confirmed":      {confirmed, false, "", 0, ReasonDeleted},
		"versions that cannot be compared":       {tombstone("A", "3"), false, "x", 0, ReasonDeleted},
		"in a later epoch":                       {tombstone("A", "3"), false, "3", 1, ReasonDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			v, acked := view(nil, c.gone), acked
			if c.lost {
				acked.Position = 0
			}
			v.Version, v.Epoch = c.version, c.epoch
			if change, got := decide(v, acked, ""); got != c.want || (change == nil) != (c.want == ReasonStale) {
				t.Errorf("got %s and %+v, want %s", got, change, c.want)
			}
		})
	}
}

// TestDecideAfterAnUnansweredUpdate verifies that Decide returns an update after an unacknowledged
// update, even if the acknowledged event has the live content. The bus may have stored the
// unacknowledged update before the object returned to that content. In an earlier version, the bus
// then kept the content of the unacknowledged update until the next refresh.
func TestDecideAfterAnUnansweredUpdate(t *testing.T) {
	v, acked := view(projected("A", "7", 1)), projectedAcked("A", "2", 1)
	if change, got := decide(v, acked, "A"); got != ReasonUpdated || change == nil {
		t.Errorf("got %s, want the update", got)
	}
	if change, got := decide(v, acked, ""); got != ReasonUnchanged || change != nil {
		t.Errorf("got %s and %+v, want nothing without an attempt", got, change)
	}
}

// TestDecideDeleteOfAnUnwatchedResource verifies that the delete of an object is published although the resource is no
// longer watched, so that the informers have no version, and the last state is unknown.
func TestDecideDeleteOfAnUnwatchedResource(t *testing.T) {
	v := event.View{Tombstones: []event.Tombstone{{UID: "A"}}}
	if change, got := decide(v, live("A", "4"), ""); got != ReasonDeleted || change == nil {
		t.Errorf("got %s and %+v, want the delete", got, change)
	}
}

// decide is Decide for a key with a last event on the bus and an attempted UID.
func decide(v event.View, acked event.Acked, attempted string) (*event.Change, Reason) {
	v.Acked, v.Attempted = acked, attempted
	return Decide(v)
}
