// Package record converts the records of the checkpoint topic, and parses what the
// forwarder reads from Kafka. Other users of the brokers can write records with any
// content. So everything that comes from a record passes [Parser] once, and its result has
// only valid values:
//
//   - Partitions and offsets are in range, so that they can be an index or a position.
//   - An entry matches its key: an object's key has the entry of an object's event, and the
//     key of a marker has the entry of such a marker.
//   - UIDs, epochs and versions are those that a forwarder can write.
//
// Anything else is an error with an [event.InvalidReason]. The caller reports it and
// continues as if the record did not exist.
//
// The package does not decide whether a valid record is authentic: a record that a
// forwarder could have written is accepted, whoever wrote it.
package record
