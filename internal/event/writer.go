package event

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// WriterStarted is the type of the marker that a writer puts into every partition of a
// Kafka topic before its first event. After it, the broker refuses the messages of earlier
// writers in that partition.
const WriterStarted Type = "io.kuberelay.writer.started"

// writerToken is in the place of the resource in the partition key of this marker.
const writerToken = "writer"

// WriterStarted builds the marker of one partition. Writer identifies the writer for
// people. The session identifies this start, and is in the id of the event:
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
	data, err := encode(writerData{Writer: writer, Topic: topic, Partition: partition})
	if err != nil {
		return fail(err)
	}
	id := text(writerToken + "." + session + "." + topic + "." + strconv.Itoa(partition))
	a := make(attributes, 0, 8)
	a.context(id, b.source(), WriterStarted, "/", observed, WriterPartitionKey(b.Cluster, topic, partition))
	return &Message{ID: id, Marker: true, Attributes: a, Data: data}, nil
}

// WriterPartitionKey returns the partition key of the writer's marker in a partition. No
// object has this key, because no group is written "_control".
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

// writerData is the data of a writer's marker.
type writerData struct {
	Writer    string `json:"writer"`
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}
