package event

import (
	"errors"
	"fmt"
	"time"
)

// The types of the markers: the first sync of a resource begins, and ends.
const (
	SnapshotStarted   Type = "io.kuberelay.snapshot.started"
	SnapshotCompleted Type = "io.kuberelay.snapshot.completed"
)

// Marker makes the CloudEvent that says that the first sync of r begins
// ([SnapshotStarted]) or has ended ([SnapshotCompleted]). The session tells one
// sync of r from the next in the event's id, which is deterministic otherwise:
//
//	<resource>.<group or core>.<started or completed>.<session>
//
// Count is the number of objects of the snapshot, 0 where it is not known yet.
func (b Builder) Marker(t Type, r Resource, session string, count int, observed time.Time) (*Message, error) {
	fail := func(err error) (*Message, error) {
		return nil, fmt.Errorf("build marker of %s: %w", r.GroupResource(), err)
	}
	var word string
	switch t {
	case SnapshotStarted:
		word = "started"
	case SnapshotCompleted:
		word = "completed"
	default:
		return fail(fmt.Errorf("unknown type %q", t))
	}
	switch {
	case b.Cluster == "":
		return fail(errors.New("the cluster has no name"))
	case r.Resource == "":
		return fail(errors.New("the resource has no name"))
	case session == "":
		return fail(errors.New("no session"))
	case observed.IsZero():
		return fail(errors.New("no time of observation"))
	}
	group := r.Group
	if group == "" {
		group = coreToken
	}
	data, err := encode(markerData{Group: r.Group, Resource: r.Resource, Count: count})
	if err != nil {
		return fail(err)
	}
	id := text(r.Resource + "." + group + "." + word + "." + session)
	a := make(attributes, 0, 8)
	a.context(id, b.source(), t, r.Path(Key{Group: r.Group, Resource: r.Resource}), observed, MarkerPartitionKey(b.Cluster, r.GroupResource()))
	return &Message{
		ID: id, Key: Key{Group: r.Group, Resource: r.Resource}, Marker: true,
		Attributes: a, Data: data,
	}, nil
}

// markerData is the data of a marker. Group is "" for the core group, as in the
// Kubernetes API.
type markerData struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	Count    int    `json:"count"`
}
