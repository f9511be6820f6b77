package ledger

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Acknowledged records that the bus has come to hold a state of a key that it did not hold:
// o, or nil if that is a delete. The key lacks only what was reported after it.
func (l *Ledger) Acknowledged(key event.Key, o *event.Object) {
	l.changeDirty(key, func(t *table, d *dirty) {
		if d.uid == "" {
			return
		}
		l.countSince(d.since, -1)
		d.since = d.observed.Unix()
		l.countSince(d.since, 1)
		if o != nil && d.uid == string(o.UID) {
			d.before = o
			if d.covers(o) {
				t.countLacks(d.lacks, -1)
				d.lacks = d.last
				t.countLacks(d.lacks, 1)
			}
		}
	})
}

// Settle drops what the bus holds now. The tombstone of the UID attempted stays, "" for
// none: the bus may show that UID although it has not said so. If abandon is true, the
// reported state is not due any more.
func (l *Ledger) Settle(key event.Key, acked event.Acked, attempted string, abandon bool) {
	l.changeDirty(key, func(t *table, d *dirty) {
		if abandon {
			t.forget(d)
		}
		// The delete of a UID is due only while the bus shows that UID as existing.
		d.drop(func(t event.Tombstone) bool {
			return (!acked.Live() || t.UID != acked.UID) && (attempted == "" || t.UID != attempted)
		})
		if acked.Live() && d.uid == acked.UID && d.version == acked.ResourceVersion {
			t.forget(d)
		}
		if acked.Live() || acked.Position != d.outlived {
			d.outlived = 0
		}
	})
}

// covers reports whether the bus lacks only what was reported in the last generation, now
// that it has o: a state of that generation, or a later one. Otherwise the key keeps its
// generation, so an object that changes all the time holds up a mark only until one of its
// later states is on the bus.
func (d *dirty) covers(o *event.Object) bool {
	if d.last == 0 || len(d.tombstones) > 0 {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, d.boundary)
	return err == nil && order >= 0
}
