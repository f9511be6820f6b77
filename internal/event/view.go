package event

import "time"

// View is what the informers know of one key at one moment.
type View struct {
	// Resource is the type in the version it is watched in; the zero value where
	// nothing watches it any more.
	Resource Resource

	// Live is the object in the indexer, nil if there is none.
	Live *Object

	// Before is the state of Live that the bus was last known to have, nil if that is not
	// known.
	Before *Object

	// Owner is the controller at the top of Live's owners, where owners are followed.
	// Hold says that one of them is not known yet, but will be.
	Owner *Owner
	Hold  bool

	// Tombstones are the UIDs of this key that are known to be gone and whose
	// delete the bus has not acknowledged.
	Tombstones []Tombstone

	// Cause and Observed are how and when the present state became known.
	Cause    Cause
	Observed time.Time

	// FirstSync: the object was there before the first completed snapshot of its
	// resource on this bus.
	FirstSync bool

	// Epoch is that of the cluster's history at present; see [Change].
	Epoch uint16
}

// Tombstone says that an object is gone, for good or, if it was deselected, from what
// is to be on the bus.
type Tombstone struct {
	UID        string
	Deselected bool
	Observed   time.Time
	Cause      Cause

	// Object is the last state the watch showed. It is nil where the delete was
	// inferred: the bus knew the object and the cluster does not.
	Object *Object
	Owner  *Owner // as in [View]
}

// Tombstone finds the tombstone of a UID.
func (v View) Tombstone(uid string) (Tombstone, bool) {
	for _, t := range v.Tombstones {
		if t.UID == uid {
			return t, true
		}
	}
	return Tombstone{}, false
}
