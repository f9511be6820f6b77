package forward

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

func object(uid, version string) *event.Object {
	return &event.Object{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "web",
		UID: types.UID(uid), ResourceVersion: version, Body: event.JSON([]byte(`{"of":"` + uid + "." + version + `"}`)),
	}
}

func live(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Position: 7}
}

// projected is an object of which a part is sent, with a digest of one byte.
func projected(uid, version string, digest byte) *event.Object {
	o := object(uid, version)
	o.Digest = event.Digest{digest}
	return o
}

// cut is an object of which something is left out.
func cut(o *event.Object) *event.Object {
	o.Cut = true
	return o
}

func projectedAcked(uid, version string, digest byte) event.Acked {
	a := live(uid, version)
	a.Digest = event.Digest{digest}
	return a
}

func deleted(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Deleted: true, Position: 8}
}

func tombstone(uid, version string) event.Tombstone {
	return event.Tombstone{UID: uid, Object: object(uid, version), Cause: event.CauseWatch, Observed: time.Unix(100, 0)}
}

func deselected(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Deleted: true, Deselected: true, Position: 8}
}

func unselected(uid, version string) event.Tombstone {
	t := tombstone(uid, version)
	t.Deselected = true
	return t
}

// TestDecide has a case for each row of the decision table, and for each way in
// which a row could be mistaken for another.
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
		"gone, bus live, no tombstone: a missing entry is no proof": {
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
		"gone, bus live in a later version than the watch has seen: the bus's state": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "9")}},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "", "", "10"},
		},
		"gone, bus live in a later version of an earlier epoch: the watch's state": {
			view:  event.View{Tombstones: []event.Tombstone{tombstone("A", "9")}, Epoch: 1},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "9", "10"},
		},
		"gone, its create was never answered: it is made certain first": {
			view:      event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}},
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", ""},
		},
		"gone, its create after another's delete was never answered": {
			view:      event.View{Tombstones: []event.Tombstone{tombstone("B", "22")}},
			acked:     deleted("A", "12"),
			attempted: "B",
			want:      want{ReasonUncertain, event.Created, "B", "22", ""},
		},
		"recreated, the first create was never answered": {
			view:      event.View{Live: object("B", "20"), Tombstones: []event.Tombstone{tombstone("A", "12")}},
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", ""},
		},
		"unselected, its being selected again was never answered: it is made certain first": {
			view:      event.View{Tombstones: []event.Tombstone{unselected("A", "12")}},
			acked:     deselected("A", "12"),
			attempted: "A",
			want:      want{ReasonUncertain, event.Created, "A", "12", "12"},
		},
		"gone, its create was never answered, its tombstone not there yet": {
			attempted: "A",
			want:      want{reason: ReasonAwait},
		},
		"live, its create was never answered: it is tried again": {
			view:      event.View{Live: object("A", "12")},
			attempted: "A",
			want:      want{ReasonCreated, event.Created, "A", "12", ""},
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
		"gone and there again, an owner is not known yet: its delete waits for nothing": {
			view:  event.View{Live: object("B", "20"), Hold: true, Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked: live("A", "10"),
			want:  want{ReasonDeleted, event.Deleted, "A", "12", "10"},
		},
		"live, bus empty, first sync: snapshot": {
			view: event.View{Live: object("B", "20"), FirstSync: true},
			want: want{ReasonCreated, event.Snapshot, "B", "20", ""},
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
		"same version, projected now, and nothing of it is left out": {
			view:  event.View{Live: projected("A", "10", 1)},
			acked: live("A", "10"),
			want:  want{reason: ReasonUnchanged},
		},
		"same version, projected now": {
			view:  event.View{Live: cut(projected("A", "10", 1))},
			acked: live("A", "10"),
			want:  want{ReasonProjected, event.Updated, "A", "10", "10"},
		},
		"same version, projected no more": {
			view:  event.View{Live: object("A", "10")},
			acked: projectedAcked("A", "10", 2),
			want:  want{ReasonProjected, event.Updated, "A", "10", "10"},
		},
		"same version, another projection, in an epoch that we have not noticed": {
			view:  event.View{Live: projected("A", "10", 1)},
			acked: event.Acked{UID: "A", ResourceVersion: "10", Epoch: 1, Digest: event.Digest{2}},
			want:  want{reason: ReasonStale},
		},
		"same version and content": {
			view:  event.View{Live: projected("A", "10", 1)},
			acked: projectedAcked("A", "10", 1),
			want:  want{reason: ReasonUnchanged},
		},
		"later version, but only in what is not sent: nothing": {
			view:  event.View{Live: projected("A", "11", 1)},
			acked: projectedAcked("A", "10", 1),
			want:  want{reason: ReasonUnchanged},
		},
		"later version, also in what is sent": {
			view:  event.View{Live: projected("A", "11", 2)},
			acked: projectedAcked("A", "10", 1),
			want:  want{ReasonUpdated, event.Updated, "A", "11", "10"},
		},
		"same content in a later epoch: its version is of another history": {
			view:  event.View{Live: projected("A", "9", 1), Epoch: 1},
			acked: projectedAcked("A", "10", 1),
			want:  want{ReasonUpdated, event.Updated, "A", "9", "10"},
		},
		"same content in an earlier version: our watch is behind": {
			view:  event.View{Live: projected("A", "9", 1)},
			acked: projectedAcked("A", "10", 1),
			want:  want{reason: ReasonStale},
		},
		"same content as it was deleted with: it is back": {
			view:  event.View{Live: projected("A", "15", 1)},
			acked: event.Acked{UID: "A", ResourceVersion: "12", Deleted: true, Digest: event.Digest{1}},
			want:  want{ReasonCreated, event.Created, "A", "15", "12"},
		},
		"same content under another UID: first the delete": {
			view:  event.View{Live: projected("B", "15", 1), Tombstones: []event.Tombstone{tombstone("A", "12")}},
			acked: projectedAcked("A", "10", 1),
			want:  want{ReasonDeleted, event.Deleted, "A", "12", "10"},
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
		"later version in an earlier epoch: we have not noticed the restore": {
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
		"a deleted UID in a later version: it left the selection and is back": {
			view:  event.View{Live: object("A", "15")},
			acked: deleted("A", "12"),
			want:  want{ReasonCreated, event.Created, "A", "15", "12"},
		},
		"a deleted UID in the version of its delete: still gone": {
			view:  event.View{Live: object("A", "12")},
			acked: deleted("A", "12"),
			want:  want{reason: ReasonStale},
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
			view:  event.View{Tombstones: []event.Tombstone{{UID: "A", Deselected: true, Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}}},
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
		"selected again, unchanged, in an epoch that we have not noticed": {
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
			change, reason := Decide(c.view, c.acked, c.attempted)
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
	view := event.View{Tombstones: []event.Tombstone{{UID: "A", Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}}}
	change, _ := Decide(view, live("A", "10"), "")
	if change == nil || change.Object != nil || change.Cause != event.CauseReconcile {
		t.Errorf("got %+v, want a delete by reconciliation without an object", change)
	}

	// Its version is that of the last state on the bus, and so is its epoch: what is
	// created under the name in the new one, with a lower version, is later.
	view.Epoch = 2
	acked := live("A", "10")
	acked.Epoch = 1
	if change, _ = Decide(view, acked, ""); change.Epoch != 1 {
		t.Errorf("its epoch is %d, want that of the last state, 1", change.Epoch)
	}
}

// TestDecideSaysAfterWhat: the ids of an object that is deselected and selected again
// differ, although its version is the same.
func TestDecideSaysAfterWhat(t *testing.T) {
	out, _ := Decide(event.View{Tombstones: []event.Tombstone{unselected("A", "12")}}, live("A", "12"), "")
	back, _ := Decide(event.View{Live: object("A", "12")}, deselected("A", "12"), "")
	changed, _ := Decide(event.View{Live: object("A", "13")}, deselected("A", "12"), "")
	unsure, _ := Decide(event.View{Tombstones: []event.Tombstone{unselected("A", "12")}}, deselected("A", "12"), "A")
	if out.After != 7 || back.After != 8 || changed.After != 0 || unsure.After != 8 {
		t.Errorf("after %d, %d, %d and %d, want 7, 8, 0 and 8", out.After, back.After, changed.After, unsure.After)
	}
}

// TestDecideKnowsTheStateBefore: only if it is what the bus has.
func TestDecideKnowsTheStateBefore(t *testing.T) {
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
			change, _ := Decide(event.View{Live: c.live, Before: c.before}, c.acked, "")
			if change == nil || (change.Before != nil) != c.want {
				t.Errorf("got %+v, want a state before: %v", change, c.want)
			}
		})
	}
	if change, _ := Decide(event.View{Live: object("A", "11"), Before: object("A", "10")}, event.Acked{}, ""); change.Before != nil {
		t.Error("a create has a state before")
	}
}
