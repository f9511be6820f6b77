package takeover

import (
	"iter"
	"maps"
	"slices"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Visibility is the brokers' view of a topic.
type Visibility int

// The values of Visibility.
const (
	Ours    Visibility = iota // the topic is recorded and visible, or Kuberelay wrote its first record
	NotOurs                   // the topic is not recorded, and it is empty or another user wrote its first record
	Hidden                    // the topic does not exist, or this user may not see it: brokers can give the same response in both cases
	Unknown                   // the brokers did not respond
)

// Use says how a session uses a topic.
type Use int

// The values of Use.
const (
	Take     Use = iota // the session writes its markers to the topic and reads it
	Ignore              // the takeover does not use the topic: it is empty, hidden, or another user's
	SetAside            // the session removes the topic's entries, and a later session reads it from its start
	Recheck             // it might be an event topic: look again later
	Fail                // an event topic can't be read now, so the takeover fails
)

// UseOf returns the use of a topic. It ignores a hidden topic that is not recorded, because an event
// topic of the cluster would be visible.
func UseOf(isRecorded bool, v Visibility) Use {
	switch {
	case v == Ours:
		return Take
	case !isRecorded && v == Unknown:
		return Recheck
	case !isRecorded:
		return Ignore
	case v == Hidden:
		return SetAside
	}
	return Fail
}

// IsRecorded reports whether the checkpoint topic names a topic.
func (c *Checkpoint) IsRecorded(topic string) bool {
	_, found := c.topics[topic]
	return found
}

// Topics returns the names of the recorded topics.
func (c *Checkpoint) Topics() iter.Seq[string] { return maps.Keys(c.topics) }

// Take returns a topic that the session takes over. partitions is the topic's current number of
// partitions.
func (c *Checkpoint) Take(name string, partitions int) *Topic {
	of := c.topics[name]
	delete(c.topics, name)
	return newTopic(name, partitions, c.Records, of, c.erased[name])
}

// Write is a record to write to the checkpoint topic. A record of the kind [record.Removed] removes the
// entry of its key. In a record of the kind [record.OfTopic], the caller sets the session and the writer.
type Write struct {
	Partition int    // of the checkpoint topic
	Key       string // "" for the state of a topic
	record.Checkpoint
}

// put returns the write that records an entry.
func put(key string, e record.Entry, records int) Write {
	return Write{Home(e.Partition, records), key, record.Checkpoint{Kind: record.OfEvent, Entry: e}}
}

// forget returns the write that removes the entry of a key from the checkpoint partition of an event
// partition.
func forget(key string, partition, records int) Write {
	return Write{Home(partition, records), key, record.Checkpoint{Kind: record.Removed}}
}

func stateOf(topic string, partitions, records int) Write {
	return Write{Checkpoint: record.Checkpoint{Kind: record.OfTopic, State: record.State{Topic: topic, Partitions: partitions, Records: records}}}
}

// SetAside removes the entries of the topics that were not taken: they do not exist, are not
// visible, or are not configured. When such a topic is visible again, a takeover reads it from its
// start. SetAside removes a partition's marker entry before the other entries, because a crash in
// between would otherwise leave a partition that seems to be recorded up to its marker.
func (c *Checkpoint) SetAside(write func(Write)) {
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		of := c.topics[name]
		if len(of.entries) == 0 && of.state.Partitions == 0 {
			continue
		}
		write(stateOf(name, 0, c.Records))
		for _, isMarker := range []bool{true, false} {
			for _, key := range slices.Sorted(maps.Keys(of.entries)) {
				if e := of.entries[key]; isWriterMarker(e) == isMarker {
					write(forget(key, e.Partition, c.Records))
				}
			}
		}
	}
	clear(c.topics)
}
