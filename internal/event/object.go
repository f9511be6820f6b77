package event

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is a Kubernetes object as it is cached and published. It has the metadata that the
// forwarder's decisions need, and the whole object as JSON.
//
// It implements [metav1.ObjectMetaAccessor] and [runtime.Object], so client-go's indexers,
// namespace index, and handlers accept it in place of an unstructured object. It is read-only once
// it is in an indexer.
type Object struct {
	APIVersion, Kind string
	Namespace, Name  string
	UID              types.UID
	ResourceVersion  string

	Body Body

	// Digest is the digest of the published content.
	Digest Digest

	// Unselected means that the object exists, but the filter does not select it. Such an object
	// has no Body.
	Unselected bool

	// FilterFailed means that the filter returned an error for the object.
	FilterFailed bool

	// Shaped means that a decode.Converter of this process has redacted and projected Body. If it is
	// false and Body is not empty, Body is a state from the bus, possibly in the form of an earlier
	// configuration.
	Shaped bool

	// Written is the time of the API server's last write of the object, as Unix time in seconds, by
	// the API server's clock. It comes from metadata.managedFields, and is 0 if
	// metadata.managedFields records no time.
	Written uint32

	// References lists the references to follow. It is nil if the object has none.
	References []Reference
}

var (
	_ runtime.Object            = (*Object)(nil)
	_ metav1.ObjectMetaAccessor = (*Object)(nil)
)

// GetObjectMeta returns the metadata that client-go's caches use: name, namespace, UID, and
// resourceVersion. Everything else is only in Body.
func (o *Object) GetObjectMeta() metav1.Object { return objectMeta{unknown, o} }

// objectMeta is as small as possible, because each watch event allocates several.
type objectMeta struct {
	metav1.Object // implements all other methods
	of            *Object
}

// unknown is the metav1.Object embedded in every objectMeta. It returns empty values for the metadata
// that objectMeta does not provide. All objectMetas can share it, because objects in an indexer are
// read-only.
var unknown metav1.Object = &metav1.ObjectMeta{}

func (m objectMeta) GetNamespace() string       { return m.of.Namespace }
func (m objectMeta) GetName() string            { return m.of.Name }
func (m objectMeta) GetUID() types.UID          { return m.of.UID }
func (m objectMeta) GetResourceVersion() string { return m.of.ResourceVersion }

// GetObjectKind implements [runtime.Object].
func (o *Object) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: o.APIVersion, Kind: o.Kind}
}

// DeepCopyObject implements [runtime.Object]. A shallow copy is enough, because the values that an
// Object refers to are immutable.
func (o *Object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// View is the state of one key in the informers at one moment.
type View struct {
	// Resource is the resource in the watched version. It is the zero value if the resource is no
	// longer watched.
	Resource Resource

	// Version is the version up to which the indexer has every change of the key, or "" if unknown.
	// Live is at least as new.
	Version string

	// Reported is a version up to which the informers have reported every change of the key: this view
	// has a tombstone for each of the key's objects that was gone at that version. It can be earlier
	// than Version. It is "" if unknown, and for a key whose last event on the bus is not foreign.
	Reported string
	Waited   bool // the decision about a foreign event no longer waits for the informers

	// Live is the object in the indexer, or nil.
	Live *Object

	// Acked is the last event of the key on the bus, or the zero value if there is none. Attempted is the
	// UID of an earlier unacknowledged publish, or "" if there is none.
	Acked     Acked
	Attempted string

	// Before is the last state of Live that is known to be on the bus, or nil.
	Before *Object

	// Owner is the controller at the top of Live's chain of owners, if owners are resolved. Hold
	// means that one of these owners is not known yet.
	Owner *Owner
	Hold  bool

	// Unpublishable means that the current state cannot be published, and a retry cannot help.
	Unpublishable bool

	Outlived Outlived // the zero value for none

	// Tombstones contains an entry for each UID of this key that is known to be gone and whose
	// delete the bus has not acknowledged.
	Tombstones []Tombstone

	// Cause and Observed are the origin and the time of the current state.
	Cause    Cause
	Observed time.Time

	// Unanswered is an unacknowledged change that the bus might have stored. It is nil if there is none.
	Unanswered *Change

	// FirstSync means that the object existed before the first completed snapshot of its resource
	// on this bus.
	FirstSync bool

	// Epoch is the current epoch of the resource. See [Change].
	Epoch uint16
}

// Outlived records that a [View] is confirmed although the bus has a delete or a foreign event. After a
// delete, a consistent read returned Live in its current version. After a foreign event, a consistent
// read returned Live in its current version or an earlier one, or found no object, or only one that is
// not selected. If the selection alone shows that the event is wrong, no read is needed.
type Outlived struct {
	Position uint64 // position of the delete or the foreign event; 0 for none
	// AbsentAt is a version at which no object existed, or "" if the read returned an object. A watch
	// that has reached this version has shown every earlier state of the key.
	AbsentAt string
	// Unselected means that the object of the foreign event might exist, but is not selected.
	Unselected bool
	At         time.Time // time of the read
}

// Tombstone records that an object is deleted, or deselected.
type Tombstone struct {
	UID        string
	Number     uint64 // increases in the order in which the ledger received reports
	Deselected bool
	Observed   time.Time
	Cause      Cause

	// Confirmed reports whether a consistent read found that the object is gone or not selected. If it
	// is false, only a watch showed this, and the watch might be behind. Contradicts is the position of the
	// last event on the bus at the time of the read, or 0 if the bus has lost that event. The read
	// proves nothing about a later event.
	Confirmed   bool
	Contradicts uint64

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
