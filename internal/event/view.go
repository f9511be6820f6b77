package event

import "time"

// View is what the informers know of one key at one moment.
type View struct {
	// Resource is the type in the watched version. It is the zero value if nothing watches
	// it any more.
	Resource Resource

	// Version is the version up to which the indexer shows the changes of the resource, or ""
	// if unknown. Live is no older.
	Version string

	// Live is the object in the indexer, or nil.
	Live *Object

	// Before is the last state of Live that the bus is known to have, or nil.
	Before *Object

	// Owner is the controller at the top of Live's owners, if owners are resolved. Hold
	// reports that one of the owners is not known yet.
	Owner *Owner
	Hold  bool

	// Unpublishable: the bus refused the present state, and a retry cannot help.
	Unpublishable bool

	// Outlived is the position of a delete on the bus that Live has outlived, or 0: a
	// consistent read after that delete returned Live in its present version. It can also be
	// the position of a foreign event: the read confirmed what this view shows, also if that
	// is nothing.
	Outlived uint64

	// Tombstones are the UIDs of this key that are known to be gone and whose delete the
	// bus has not acknowledged.
	Tombstones []Tombstone

	// Cause and Observed are the origin and the time of the present state.
	Cause    Cause
	Observed time.Time

	// FirstSync: the object existed before the first completed snapshot of its resource on
	// this bus.
	FirstSync bool

	// Epoch is the present epoch of the resource; see [Change].
	Epoch uint16
}

// Tombstone records that an object is deleted, or deselected.
type Tombstone struct {
	UID        string
	Deselected bool
	Confirmed  bool // a consistent read found it; without, a watch that may be behind showed it
	Observed   time.Time
	Cause      Cause

	// Object is the last state that the watch showed. It is nil if the delete was inferred,
	// because the bus has the object and the cluster does not.
	Object *Object
	Owner  *Owner // as in [View]
}

// Tombstone returns the tombstone of a UID.
func (v View) Tombstone(uid string) (Tombstone, bool) {
	for _, t := range v.Tombstones {
		if t.UID == uid {
			return t, true
		}
	}
	return Tombstone{}, false
}
