package takeover

import (
	"iter"
	"maps"
	"slices"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Visibility is what the brokers show of a topic.
type Visibility int

// The values of Visibility.
const (
	Ours    Visibility = iota // the topic is recorded and visible, or its first record is Kuberelay's
	NotOurs                   // the topic is not recorded, and it is empty or its first record is not Kuberelay's
	Hidden                    // the topic does not exist, or this user may not see it: brokers can respond to both in the same way
	Unknown                   // the brokers did not answer
)

// Use is what a session does with a topic.
type Use int

// The uses.
const (
	Take     Use = iota // it writes its markers and reads the topic
	Ignore              // the topic is another user's: nothing is written to it
	SetAside            // its entries are removed, and it is read from its start when it is visible again
	Recheck             // it may be an event topic: look again later
	Fail                // an event topic can't be read now, so the takeover fails
)

// UseOf decides what is done with a topic that was looked at. An event topic that is not recorded would be
// readable.
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

// Take returns a topic that the session takes over. The topic has a number of partitions.
func (c *Checkpoint) Take(name string, partitions int) *Topic {
	of := c.topics[name]
	delete(c.topics, name)
	return newTopic(name, partitions, c.Records, of, c.erased[name])
}

// Write is a record that the checkpoint topic must get. A zero entry removes the entry of the key. A state
// has no session and writer: the caller knows them.
type Write struct {
	Partition int    // of the checkpoint topic
	Key       string // "" for a state
	record.Checkpoint
}

// put returns the write of an entry.
func put(key string, e record.Entry, records int) Write {
	return Write{Home(e.Partition, records), key, record.Checkpoint{Kind: record.OfEvent, Entry: e}}
}

// forget returns the write that removes the entry of a key in a partition of an event topic.
func forget(key string, partition, records int) Write {
	return Write{Home(partition, records), key, record.Checkpoint{Kind: record.Removed}}
}

func stateOf(topic string, partitions, records int) Write {
	return Write{Checkpoint: record.Checkpoint{Kind: record.OfTopic, State: record.State{Topic: topic, Partitions: partitions, Records: records}}}
}

// SetAside removes the entries of the topics that were not taken: they do not exist,
// are not visible, or are not configured. If such a topic becomes visible again, it is read
// from its start. The entry of a partition's marker is removed before the others. Otherwise
// a crash in between would leave a partition that seems to be recorded up to its marker.
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
