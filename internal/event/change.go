package event

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Type is what happened to an object; its text is the CloudEvents type.
type Type string

// The types of section «events» in docs/events.md.
const (
	Created  Type = "io.kuberelay.object.created"
	Updated  Type = "io.kuberelay.object.updated"
	Deleted  Type = "io.kuberelay.object.deleted"
	Snapshot Type = "io.kuberelay.object.snapshot" // existed before the first completed sync of its resource

	// Deselected: the object exists, and what is selected does not include it any
	// more. To a replica it is gone; it may come back with Created.
	Deselected Type = "io.kuberelay.object.deselected"
)

// Gone tells whether a replica of what is selected loses the object.
func (t Type) Gone() bool { return t == Deleted || t == Deselected }

// Short is the last word of the type: "created". It is a label of metrics.
func (t Type) Short() string { return string(t[strings.LastIndexByte(string(t), '.')+1:]) }

// Cause is how the forwarder came to know of a change.
type Cause string

const (
	// CauseWatch: the API server's watch reported it.
	CauseWatch Cause = "watch"
	// CauseSnapshot: the first sync of the resource found it.
	CauseSnapshot Cause = "snapshot"
	// CauseReconcile: it was found by comparing the cluster with the bus, as
	// after a restart.
	CauseReconcile Cause = "reconcile"
)

// Change is one thing to tell the bus about one object.
type Change struct {
	Type     Type
	Cause    Cause
	Key      Key
	Resource Resource // the version in which Object is served

	// Object is the state to publish; for a delete, the last one known. Its Body
	// is nil where not even the bus has it: then only identity is published,
	// with finalstateunknown.
	Object *Object

	// Before is the state of an updated object that the bus has, of version Previous; nil
	// where that is not known.
	Before *Object

	// Owner is the controller at the top of the object's owners, nil where there is none
	// or owners are not followed.
	Owner *Owner

	// Epoch counts how often the API server's own history went back (etcd
	// restored from a backup).
	Epoch uint16

	// Previous is the resourceVersion of the object's last acknowledged event,
	// "" on the first.
	Previous string

	// Observed is when the forwarder learned of it.
	Observed time.Time

	// After is the position of the event on the bus that this one follows, where it is
	// part of the id: an object may be deselected, and selected again, many times
	// without a change of its own, and an update may be of what is left out of it
	// alone, as another configuration says. Otherwise it is 0.
	After uint64

	// Truncated asks for identity and metadata instead of the whole object,
	// because the bus refused the whole.
	Truncated bool
}

// before is the state before that can be compared with the object; nil for none.
func (c Change) before() *Object {
	b := c.Before
	if c.Type != Updated || b == nil || b.Body.None() || c.Object.Body.None() || b.UID != c.Object.UID || b.ResourceVersion != c.Previous {
		return nil
	}
	return b
}

// Acked is what the bus has acknowledged of one object: the content of the
// checkpoint. The zero value means that the bus holds nothing of it.
type Acked struct {
	UID             string
	ResourceVersion string
	Epoch           uint16
	Deleted         bool // the bus shows it as gone: deleted, or deselected
	Deselected      bool // with Deleted: it only left what is selected

	// Digest is that of the event; see [Digest].
	Digest Digest

	// Stored is when the bus stored that event, in seconds since 1970; 0 where that
	// is not known. It is what the retention of deletes goes by.
	Stored uint32

	// Position is where the bus keeps that event: on NATS the stream sequence,
	// which the next publish of the object names as the one it expects.
	Position uint64
}

// Live tells whether the bus shows the object as existing.
func (a Acked) Live() bool { return a.UID != "" && !a.Deleted }

// Identity is the object of which no more is known than what the bus has
// acknowledged: a delete made of it has finalstateunknown.
func (a Acked) Identity(k Key) *Object {
	return &Object{Namespace: k.Namespace, Name: k.Name, UID: types.UID(a.UID), ResourceVersion: a.ResourceVersion}
}

// ResourceOf is the type of a key whose resource is not watched any more, as far
// as the last object on the bus tells.
func ResourceOf(k Key, last *Object) Resource {
	version := ""
	if gv, err := schema.ParseGroupVersion(last.APIVersion); err == nil {
		version = gv.Version
	}
	return Resource{Group: k.Group, Version: version, Resource: k.Resource, Kind: last.Kind, Namespaced: k.Namespace != ""}
}
