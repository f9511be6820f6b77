package wire

import "strings"

// Type is the attribute type.
type Type string

// The types of object events, followed by the types of markers.
const (
	Created    Type = "io.kuberelay.object.created"
	Updated    Type = "io.kuberelay.object.updated"
	Deleted    Type = "io.kuberelay.object.deleted"
	Deselected Type = "io.kuberelay.object.deselected"
	Snapshot   Type = "io.kuberelay.object.snapshot"

	SnapshotStarted   Type = "io.kuberelay.snapshot.started"
	SnapshotCompleted Type = "io.kuberelay.snapshot.completed"
	ClusterClaimed    Type = "io.kuberelay.cluster.claimed"
	WriterStarted     Type = "io.kuberelay.writer.started"
	Resolved          Type = "io.kuberelay.resource.resolved"
)

// ObjectType returns s as one of the five types of object events, or "". The result is a constant,
// so that an event does not keep its own copy of the string.
func ObjectType(s string) Type {
	for _, t := range [...]Type{Created, Updated, Deleted, Deselected, Snapshot} {
		if s == string(t) {
			return t
		}
	}
	return ""
}

// Removes reports whether a replica deletes the object on an event of this type.
func (t Type) Removes() bool { return t == Deleted || t == Deselected }

// Begins reports whether the first event of an object can have this type.
func (t Type) Begins() bool { return t == Created || t == Snapshot }

// Short returns the part of the type after the last dot.
func (t Type) Short() string { return string(t[strings.LastIndexByte(string(t), '.')+1:]) }

// Marks reports whether markers of this type have the kind k.
func (t Type) Marks(k Kind) bool {
	switch t {
	case SnapshotStarted, SnapshotCompleted:
		return k == OfSnapshot
	case ClusterClaimed:
		return k == OfClaim
	case WriterStarted:
		return k == OfWriter
	case Resolved:
		return k == OfResolved
	}
	return false
}
