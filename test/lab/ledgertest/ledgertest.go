// Package ledgertest builds objects and events for tests of the ledger's decisions.
package ledgertest

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
)

// Object returns an object with a body that depends on its UID and version.
func Object(uid, version string) *event.Object {
	return &event.Object{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "web",
		UID: types.UID(uid), ResourceVersion: version, Body: event.JSON([]byte(`{"of":"` + uid + "." + version + `"}`)),
	}
}

// Live returns the acknowledged event of an existing object, at position 7.
func Live(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Position: 7}
}

// Projected returns an object whose digest is a projected digest, as for an object with dropped fields.
func Projected(uid, version string, digest byte) *event.Object {
	o := Object(uid, version)
	o.Digest = event.Digest{15: digest}
	return o
}

// Whole returns an object whose digest is a text digest, as for an object that is published whole.
func Whole(uid, version string, digest byte) *event.Object {
	o := Object(uid, version)
	o.Digest = event.Digest{digest}
	return o
}

// WholeAcked returns the acknowledged event of the object from [Whole], at position 7.
func WholeAcked(uid, version string, digest byte) event.Acked {
	a := Live(uid, version)
	a.Digest = event.Digest{digest}
	return a
}

// ProjectedAcked returns the acknowledged event of the object from [Projected], at position 7.
func ProjectedAcked(uid, version string, digest byte) event.Acked {
	a := Live(uid, version)
	a.Digest = event.Digest{15: digest}
	return a
}

// Deleted returns the acknowledged event of a deleted object, at position 8.
func Deleted(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Deleted: true, Position: 8}
}

// Tombstone returns the tombstone of a deleted object. It contains the object's last state.
func Tombstone(uid, version string) event.Tombstone {
	return event.Tombstone{UID: uid, Object: Object(uid, version), Cause: event.CauseWatch, Observed: time.Unix(100, 0)}
}

// Deselected returns the acknowledged event of a deselected object, at position 8.
func Deselected(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Deleted: true, Deselected: true, Position: 8}
}

// Unselected returns the tombstone of a deselected object. It contains the object's last state.
func Unselected(uid, version string) event.Tombstone {
	t := Tombstone(uid, version)
	t.Deselected = true
	return t
}

// At returns a copy of the event at another position.
func At(a event.Acked, position uint64) event.Acked {
	a.Position = position
	return a
}

// WithEpoch returns a copy of the event in another epoch.
func WithEpoch(a event.Acked, epoch uint16) event.Acked {
	a.Epoch = epoch
	return a
}

// WithData sets the object's body to JSON with a data field, as from the API server.
func WithData(o *event.Object, version string) *event.Object {
	o.Body = event.JSON([]byte(`{"apiVersion":"v1","metadata":{"name":"web","resourceVersion":"` + version + `"},"data":{"a":"b"}}`))
	return o
}

// Sent returns an object whose body contains its UID, its version and the given members.
func Sent(uid, version, body string) *event.Object {
	o := Object(uid, version)
	o.Body = event.JSON([]byte(`{"metadata":{"uid":"` + uid + `","resourceVersion":"` + version + `"},` + body + `}`))
	return o
}

// WithDigest sets the object's digest to the digest of its body.
func WithDigest(t *testing.T, o *event.Object) *event.Object {
	t.Helper()
	d, err := decode.DigestOf(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	o.Digest = d
	return o
}
