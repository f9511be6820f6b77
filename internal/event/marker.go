package event

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The types of the markers at the beginning and the end of a resource's first sync.
const (
	SnapshotStarted   Type = "io.kuberelay.snapshot.started"
	SnapshotCompleted Type = "io.kuberelay.snapshot.completed"
)

// Resolved is the type of a consistency point.
const Resolved Type = "io.kuberelay.resource.resolved"

// Point is a consistency point of a resource: the bus has every change up to a version.
type Point struct {
	Resource Resource
	Version  string    // the highest resourceVersion up to which the watch has shown everything
	Objects  int       // number of selected objects that exist at that version
	AsOf     time.Time // time at which the watch had shown everything up to Version
	Taken    time.Time // time at which the point was taken; makes the id unique
}

// Resolved builds the event of a consistency point. The attributes repeat the data, because a
// consistency point on Kafka has no data. Without data, a table built from the topic has no row for
// the point. The id is
//
//	<resource>.<group or core>.resolved.<resourceVersion>.<time>
func (b Builder) Resolved(p Point) (*Message, error) {
	gr := p.Resource.GroupResource()
	switch {
	case b.Cluster == "" || gr.Resource == "":
		return nil, fmt.Errorf("build consistency point of %s: the cluster or the resource has no name", gr)
	case p.Version == "" || p.AsOf.IsZero() || p.Taken.IsZero():
		return nil, fmt.Errorf("build consistency point of %s: no version or no time", gr)
	}
	at := p.AsOf.UTC()
	data, err := EncodeJSON(resolvedData{gr.Group, gr.Resource, p.Version, at, p.Objects})
	if err != nil {
		return nil, fmt.Errorf("build consistency point of %s: %w", gr, err)
	}
	id := text(gr.Resource + "." + cmp.Or(gr.Group, coreToken) + ".resolved." + p.Version + "." + session(p.Taken))
	key := Key{Group: gr.Group, Resource: gr.Resource}
	a := make(attributes, 0, 12)
	a.context(id, b.source(), Resolved, p.Resource.Path(key), at, ResolvedPartitionKey(b.Cluster, gr))
	a.add("group", gr.Group)
	a.add("resource", gr.Resource)
	a.add("resourceversion", p.Version)
	a.add("objects", strconv.Itoa(p.Objects))
	return &Message{ID: id, Key: key, Marker: true, Attributes: a, Data: data}, nil
}

// IsResolved reports whether m is a consistency point. On Kafka, every partition of the resource's
// topic receives it.
func (m *Message) IsResolved() bool {
	return m.Marker && Type(m.Attribute("type")) == Resolved
}

// resolvedData is the data of a consistency point. Group is "" for the core group.
type resolvedData struct {
	Group           string    `json:"group"`
	Resource        string    `json:"resource"`
	ResourceVersion string    `json:"resourceVersion"`
	AsOf            time.Time `json:"asOf"`
	Objects         int       `json:"objects"`
}

// Marker builds the marker of the beginning ([SnapshotStarted]) or the end ([SnapshotCompleted]) of
// the first sync of r. The id of the event is deterministic, except for session, which
// distinguishes the syncs of r:
//
//	<resource>.<group or core>.<started or completed>.<session>
//
// count is the number of objects of the snapshot, or 0 if unknown.
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
	data, err := EncodeJSON(markerData{Group: r.Group, Resource: r.Resource, Count: count})
	if err != nil {
		return fail(err)
	}
	id := text(r.Resource + "." + cmp.Or(r.Group, coreToken) + "." + word + "." + session)
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

// WriterStarted is the type of the marker that a writer puts into every partition of a Kafka topic
// before its first event. Once a partition has the marker, the broker refuses the messages of
// earlier writers there.
const WriterStarted Type = "io.kuberelay.writer.started"

// writerToken identifies a writer's marker in its partition key.
const writerToken = "writer"

// WriterStarted builds the writer's marker for one partition. writer is the human-readable name of
// the writer. session identifies this start of the writer, and is part of the event's id:
//
//	writer.<session>.<topic>.<partition>
func (b Builder) WriterStarted(writer, session, topic string, partition int, observed time.Time) (*Message, error) {
	fail := func(err error) (*Message, error) {
		return nil, fmt.Errorf("build marker of writer %q: %w", writer, err)
	}
	switch {
	case b.Cluster == "":
		return fail(errors.New("the cluster has no name"))
	case session == "":
		return fail(errors.New("no session"))
	case topic == "":
		return fail(errors.New("no topic"))
	case observed.IsZero():
		return fail(errors.New("no time of observation"))
	}
	data, err := EncodeJSON(writerData{Writer: writer, Topic: topic, Partition: partition})
	if err != nil {
		return fail(err)
	}
	id := text(writerToken + "." + session + "." + topic + "." + strconv.Itoa(partition))
	a := make(attributes, 0, 8)
	a.context(id, b.source(), WriterStarted, "/", observed, WriterPartitionKey(b.Cluster, topic, partition))
	return &Message{ID: id, Marker: true, Attributes: a, Data: data}, nil
}

// WriterPartitionKey returns the partition key of the writer's marker in a partition. No object has
// this key, because no group is encoded as "_control".
func WriterPartitionKey(cluster, topic string, partition int) string {
	b := append(ClusterPartitionKeys(cluster), controlToken+"/"+writerToken+"/"...)
	b = appendText(b, topic, true)
	return string(strconv.AppendInt(append(b, '/'), int64(partition), 10))
}

// ClusterPartitionKeys returns the prefix of the partition keys of a cluster's events. No
// other keys begin with it.
func ClusterPartitionKeys(cluster string) []byte {
	return append(appendText(nil, cluster, true), '/')
}

type writerData struct {
	Writer    string `json:"writer"`
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}
