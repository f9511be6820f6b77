package event

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Type says what happened to an object. Its text is the CloudEvents type.
type Type string

// TypePrefix begins every type.
const TypePrefix = "io.kuberelay."

// The types in section "Types" of docs/events.md.
const (
	Created  Type = "io.kuberelay.object.created"
	Updated  Type = "io.kuberelay.object.updated"
	Deleted  Type = "io.kuberelay.object.deleted"
	Snapshot Type = "io.kuberelay.object.snapshot" // the object existed before the first completed sync of its resource

	// Deselected means that the object exists and is no longer selected. A replica removes it. A
	// Created event follows if it is selected again.
	Deselected Type = "io.kuberelay.object.deselected"
)

// IsRemoval reports whether an event of this type makes a replica of the selected objects remove
// the object.
func (t Type) IsRemoval() bool { return t == Deleted || t == Deselected }

// Short returns the last word of the type, such as "created". It is a metric label.
func (t Type) Short() string { return string(t[strings.LastIndexByte(string(t), '.')+1:]) }

// Cause says how the forwarder learned of a change.
type Cause string

const (
	// CauseWatch means that the API server's watch reported the change.
	CauseWatch Cause = "watch"
	// CauseSnapshot means that the first sync of the resource found the object.
	CauseSnapshot Cause = "snapshot"
	// CauseReconcile means that a comparison of the cluster with the bus found the change, for
	// example after a restart.
	CauseReconcile Cause = "reconcile"
)

// Change is one change of one object to publish.
type Change struct {
	Type     Type
	Cause    Cause
	Key      Key
	Resource Resource // the resource in the API version of Object

	// Object is the state to publish. For a delete, it is the last known state. If no state is
	// known, not even from the bus, Body is empty, and the event has only the identity and the
	// attribute finalstateunknown.
	Object *Object

	// Before is the state of an updated object on the bus, at version Previous. It is nil if
	// unknown.
	Before *Object

	// Owner is the controller at the top of the object's owners. It is nil if the object has no
	// controller, or if Kuberelay does not resolve owners.
	Owner *Owner

	// Epoch is the epoch of the resource. A new epoch begins when the resource's history is rolled
	// back because etcd was restored from a backup, and when another cluster takes over the name.
	// See [Claim.Epoch].
	Epoch uint16

	// Previous is the resourceVersion of the object's last acknowledged event, or "" for
	// the first event.
	Previous string

	// Observed is the time at which the forwarder learned of the change.
	Observed time.Time

	// After is the position of the object's preceding event on the bus if the id includes that
	// position, and 0 otherwise. The ids of deselected events and of repairs include it. The id
	// also includes it if an earlier event has the same version. This happens when the object is
	// selected again, when the bus has a delete of an object that still exists (see [Outlived]), or
	// when other content of the same version is published.
	After uint64

	// Uncertain means that an earlier publish of the object was neither acknowledged nor refused,
	// so the last event on the bus might differ from the acknowledged event. In this case, the change is
	// published even if the acknowledged event has the same content.
	Uncertain bool

	// Repairs means that the event at After is a foreign event (see [Acked.Foreign]) that contradicts
	// the cluster. This event publishes the state of the object again.
	Repairs bool

	// Present is the checkpoint entry of the foreign event that this event repairs, if the foreign
	// event has the object's truncated form. Otherwise, it is nil. If the bus refuses the full form
	// as too large, the foreign event needs no repair.
	Present *Acked

	// Truncated means that only identity and metadata are published, because the bus refused the
	// whole object or the object is nested too deeply (see [ErrTooDeep]).
	Truncated bool
}

// before returns the previous state if it can be compared with the object, or nil.
func (c Change) before() *Object {
	b := c.Before
	if c.Type != Updated || b == nil || b.Body.None() || c.Object.Body.None() || b.UID != c.Object.UID || b.ResourceVersion != c.Previous {
		return nil
	}
	return b
}

// ErrNewest is the error of a purge that must keep the object's last event for now, because that
// event is the newest of its partition. A purge can remove the event after the bus stores a newer
// one.
var ErrNewest = errors.New("the event is the newest of its partition")

// Acked describes the last event of one object that the bus has acknowledged. It is an entry of the
// checkpoint. The zero value means that the bus has no event of the object.
type Acked struct {
	UID             string
	ResourceVersion string
	Epoch           uint16
	Deleted         bool // the event is a removal: deleted or deselected
	Deselected      bool // the event is deselected; Deleted is set too

	// Foreign means that the last event on the bus, at Position, has an unknown writer. The other
	// fields describe the last known event before it. See [Acked.Before].
	Foreign bool

	// Digest is the digest in the event. See [Digest].
	Digest Digest

	// Time is the attribute time of the event, in Unix milliseconds, rounded up, or 0 if unknown.
	// The next event of the object has this time or a later one. For a removal, Time is the time at
	// which the bus stored the event if that is later, because the retention starts then. See
	// [Acked.StoredAt].
	Time int64

	// Position is the position of the event on the bus. On NATS, it is the stream sequence number
	// that the next publish of the object expects.
	Position uint64
}

// MaxSkew is the maximum by which a writer's clock may be ahead of another clock. A time further
// ahead is ignored, because all later events of the object would need that time or a later one.
const MaxSkew = time.Hour

// milliseconds returns a time in Unix milliseconds, rounded up.
func milliseconds(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// StoredAt sets Time to stored, the time at which the bus stored the event, in two cases: Time is
// unknown or too far ahead of stored, or the event is a removal and stored is later than Time. The
// caller sets Time from the event's attributes first.
func (a *Acked) StoredAt(stored time.Time) {
	at := stored.UnixMilli()
	if a.Time <= 0 || a.Time > at+MaxSkew.Milliseconds() || a.Deleted && a.Time < at {
		a.Time = at
	}
}

// NotBefore returns the time of the object's next event. observed is the time at which the state in that
// event was observed. The times of an object's events never decrease, even if a clock is set back or
// another machine becomes the writer. The only exception is a last time that is more than [MaxSkew]
// ahead of now.
func (a Acked) NotBefore(observed, now time.Time) time.Time {
	if last := time.UnixMilli(a.Time); last.After(observed) && last.Sub(now) <= MaxSkew {
		return last
	}
	return observed
}

// Before returns the checkpoint entry of an object whose last known event is a, and whose last event
// on the bus is the foreign event e. The content of e is not trusted. For a known object, the entry
// takes only the position of e, and its time if that is later. For an unknown object, the entry also
// takes the UID of e and whether e is a removal, but no version.
func (a Acked) Before(e Acked) Acked {
	if a.UID == "" {
		a = Acked{UID: e.UID, Deleted: e.Deleted}
	}
	a.Position, a.Time, a.Foreign = e.Position, max(a.Time, e.Time), true
	return a
}

// IsSameEvent reports whether two entries describe the same event. It ignores Digest, Time, and
// Foreign. The digest in the checkpoint can be newer than the digest in the event.
func (a Acked) IsSameEvent(b Acked) bool {
	a.Digest, a.Time, a.Foreign = b.Digest, b.Time, b.Foreign
	return a == b
}

// MaxText is the maximum length in bytes of a partition key, of an event's id, of an apiVersion, and
// of a claim on Kafka. API servers use far shorter values. The limit protects memory: the forwarder
// keeps these values in memory, and a compressed batch of a few kilobytes can contain a value of many
// megabytes.
const MaxText = 4096

// maxVersion is the maximum combined length in bytes of a UID and a resourceVersion. Even if all of
// their bytes are percent-encoded, no id is longer than [MaxText].
const maxVersion = 1024

// validVersion returns an error if a UID and a resourceVersion are longer than maxVersion.
func validVersion(uid, version string) error {
	if n := len(uid) + len(version); n > maxVersion {
		return fmt.Errorf("uid and resourceVersion have %d bytes together, and the limit is %d", n, maxVersion)
	}
	return nil
}

// Validate returns an error with an [InvalidReason] for an entry that no forwarder writes.
func (a Acked) Validate() error {
	switch {
	case a.UID == "":
		return Invalid(InvalidAttribute, errors.New("no uid"))
	case a.Epoch > LastEpoch:
		return Invalid(InvalidEpoch, fmt.Errorf("epoch %d is later than the last epoch, %d", a.Epoch, LastEpoch))
	case a.Deselected && !a.Deleted:
		return Invalid(InvalidAttribute, errors.New("the entry is deselected, but not deleted"))
	}
	if err := validVersion(a.UID, a.ResourceVersion); err != nil {
		return Invalid(InvalidAttribute, err)
	}
	return nil
}

// Unordered returns the entry without epoch, version, and digest, so that every state of the object
// counts as later. Use it for an event with an implausible epoch.
func (a Acked) Unordered() Acked {
	a.Epoch, a.ResourceVersion, a.Digest = 0, "", Digest{}
	return a
}

// IsUnversioned reports whether the entry is a removal of the object with this UID, and has no
// version. Another forwarder probably published the removal, so its version is not trusted. If a
// watch shows an object with the UID, that state might be earlier than the removal.
func (a Acked) IsUnversioned(uid string) bool {
	return a.Deleted && a.UID == uid && a.ResourceVersion == ""
}

// Live reports whether the object exists according to the bus.
func (a Acked) Live() bool { return a.UID != "" && !a.Deleted }

// Identity returns an object with only the acknowledged identity. The delete of such an object has
// the attribute finalstateunknown.
func (a Acked) Identity(k Key) *Object {
	return &Object{Namespace: k.Namespace, Name: k.Name, UID: types.UID(a.UID), ResourceVersion: a.ResourceVersion}
}

// ResourceOf returns the resource of a key that is no longer watched. It takes version and kind
// from last, the last object on the bus.
func ResourceOf(k Key, last *Object) Resource {
	version := ""
	if gv, err := schema.ParseGroupVersion(last.APIVersion); err == nil {
		version = gv.Version
	}
	return Resource{Group: k.Group, Version: version, Resource: k.Resource, Kind: last.Kind, Namespaced: k.Namespace != ""}
}

// Stored is an event of an object, read from a bus.
type Stored struct {
	Acked     Acked
	Object    *Object // nil if only the headers were read, or the data is invalid
	Truncated Body    // the data of a truncated event, whose Object has no body
}

// Read sets Object and Truncated from the data of the event. If it returns an error, it sets
// neither.
func (s *Stored) Read(m *Message) error {
	object, err := ObjectFromData(m.Attribute, m.Data)
	if err != nil {
		return err
	}
	truncated, err := truncatedFromData(m.Attribute, m.Data)
	if err != nil {
		return err
	}
	s.Object, s.Truncated = object, truncated
	return nil
}
