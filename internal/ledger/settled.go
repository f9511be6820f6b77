package ledger

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Interest tells whether the object of a key belongs on the bus.
type Interest struct {
	Selected  bool   // the rules that don't depend on the object's content select it
	Published bool   // the filter selects the object's content; true if the content is unknown
	Reports   uint64 // the value of [Ledger.Reports] before the informers were asked
}

// IsAttempt reports whether an event on the bus can come from an unacknowledged publish of a key.
func (t *Term) IsAttempt(key event.Key, bus event.Acked) bool {
	t.ledger.mu.RLock()
	defer t.ledger.mu.RUnlock()
	return t.ledger.term == t && t.ledger.find(key).others().attempts.has(bus)
}

// Put records the last event of a key that the bus has reported. The zero value means that the bus
// has none.
func (t *Term) Put(key event.Key, a event.Acked) {
	t.step(key, func(of *table, r *record) { t.put(key, of, r, a) })
}

// put implements Put for a record. It keeps the attempts if the event is foreign, because a foreign
// event might be an attempt (see [DecideForeign]).
func (t *Term) put(key event.Key, of *table, r *record, a event.Acked) {
	if isLoss(r.acked(), a) {
		t.lost++
	}
	t.set(key, of, r, a)
	if !a.Foreign {
		r.setAttempts(nil)
	}
}

// Replace changes the last event of a key from was to is. If the last event no longer equals was,
// Replace does nothing and returns false.
func (t *Term) Replace(key event.Key, was, is event.Acked) (ok bool) {
	t.step(key, func(of *table, r *record) {
		if ok = r.acked() == was; ok {
			t.set(key, of, r, is)
		}
	})
	return ok
}

// Adopt is like Replace, for an event that an attempt or another forwarder of this cluster
// published. It also forgets the attempts, unless they expect this event. If they expect this
// event, the bus can still store them after it.
func (t *Term) Adopt(key event.Key, was, is event.Acked) {
	t.step(key, func(of *table, r *record) {
		if r.acked() != was {
			return
		}
		t.set(key, of, r, is)
		r.dropRefused()
	})
}

// dropRefused forgets the attempts if the last event on the bus is at a position that they don't expect,
// because the bus refuses them. It keeps the attempts if the event is foreign, because the event might be
// one of them.
func (r *record) dropRefused() {
	is := r.acked()
	if a := r.others().attempts; a != nil && a.expected != is.Position && !is.Foreign {
		r.setAttempts(nil)
	}
}

// Acknowledge records that the bus has acknowledged an event of a key with the state o. After that,
// the bus lacks only changes that were reported later. reported is false if the ledger has no report
// about the object, for example because the object's informer ended while the event was in flight.
func (t *Term) Acknowledge(key event.Key, acked event.Acked, o *event.Object, in Interest) (reported bool) {
	t.step(key, func(of *table, r *record) {
		d := r.others().dirty
		reported = d != nil && (d.uid == acked.UID || d.has(acked.UID))
		t.set(key, of, r, acked)
		r.setAttempts(nil)
		of.reached(d, acked)
		t.ledger.settle(of, r, acked, nil, in)
		t.ledger.noteAcknowledged(of, r, acked, o)
	})
	return reported
}

// Settle records that the bus needs no new event for the current state of a key. If the current state differs
// from the state on the bus only in unpublished fields, acked has the version of the current state. shown is
// the UID of the object that the informers showed after in was determined, or "" if they showed no selected
// object.
func (t *Term) Settle(key event.Key, acked event.Acked, in Interest, shown string) {
	t.step(key, func(of *table, r *record) {
		d := r.others().dirty
		if d != nil && acked.Live() && shown == acked.UID { // the object left the selection and returned
			d.drop(func(t event.Tombstone) bool {
				return t.Deselected && t.UID == acked.UID && t.Number <= in.Reports
			})
		}
		of.reached(d, acked)
		t.ledger.settle(of, r, acked, nil, in)
	})
}

// Unanswered records that a publish of a key is unacknowledged. sent is the event that might be on the
// bus, or the zero value if the bus certainly did not store it. c is the change that was sent. While
// the bus is down, many UIDs can use one name in turn, so Unanswered keeps only the tombstones whose
// delete must be published.
func (t *Term) Unanswered(key event.Key, acked, sent event.Acked, c *event.Change, in Interest) {
	t.step(key, func(of *table, r *record) {
		if sent != (event.Acked{}) {
			r.setAttempts(r.others().attempts.with(sent, acked, c))
			if is := r.acked(); isLoss(acked, is) || is.Position > acked.Position { // a load found a loss or a later event
				r.dropRefused()
			}
			if r.others().dirty == nil && r.others().attempts.hasChange() { // its informer ended while the event was in flight
				t.ledger.makeDirty(of, r, c.Observed)
			}
		}
		t.ledger.settle(of, r, acked, r.others().attempts, in)
	})
}

func (r *record) setAttempts(to *attempts) {
	if others := r.others(); others.attempts != to {
		others.attempts = to
		r.setRest(others)
	}
}

// reached forgets the reported state of a key if acked has its version. Unanswered does not call it,
// because an event can be due although the bus has the version, for example after a change of
// KUBERELAY_DROP_FIELDS.
func (t *table) reached(d *dirty, acked event.Acked) {
	if d != nil && acked.Live() && d.uid == acked.UID && d.version == acked.ResourceVersion {
		t.forget(d)
	}
}

// settle removes from the dirty part of a key the changes that the bus now has. It keeps the
// tombstones of the UIDs in attempts, because the bus might show these UIDs without having
// acknowledged them. It keeps a state that was reported after in was determined.
func (l *Ledger) settle(t *table, r *record, acked event.Acked, attempts *attempts, in Interest) {
	d := r.others().dirty
	if d == nil {
		return
	}
	mayShow := acked.Live() || attempts.mayShow() // if so, an object that stopped matching needs a removal
	if (!in.Selected || !mayShow && !in.Published) && d.number <= in.Reports {
		t.forget(d)
	}
	r.dropUnshown(acked, attempts)
	if acked.Position != d.confirmed().Position {
		d.outlived = nil
	}
	if !attempts.mayShow() {
		t.answered(d)
	}
}

// dropUnshown forgets the tombstones of a dirty key whose UIDs the bus cannot show. The delete of a UID is
// due only while the bus might show that UID as existing.
func (r *record) dropUnshown(acked event.Acked, attempts *attempts) {
	r.others().dirty.drop(func(t event.Tombstone) bool {
		return (!acked.Live() || t.UID != acked.UID) && !attempts.show(t.UID)
	})
}

// noteAcknowledged records that the bus received a new state of a key that is still dirty. From
// then on, the bus lacks only the last reported state, so the key counts as dirty since that state
// was observed.
func (l *Ledger) noteAcknowledged(t *table, r *record, acked event.Acked, o *event.Object) {
	d := r.others().dirty
	if d == nil || d.uid == "" {
		return
	}
	l.moveSince(d, d.observed.Unix())
	if acked.Live() && o != nil && d.uid == string(o.UID) {
		d.before = o
		if d.covers(o) {
			t.countLacks(d.lacks, -1)
			d.lacks = d.last
			t.countLacks(d.lacks, 1)
		}
	}
}

// covers reports whether the bus, now that it has o, lacks only changes of the last generation. This
// is the case if o is the first state of that generation or a later state. The caller then moves the
// key to that generation. So an object that changes all the time delays a mark only until the bus has
// a state that is later than the mark.
func (d *dirty) covers(o *event.Object) bool {
	if d.last == 0 || len(d.tombstones) > 0 {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, d.boundary)
	return err == nil && order >= 0
}
