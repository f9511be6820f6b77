// Package record encodes the records of the checkpoint topic, and parses the records that the
// forwarder reads from Kafka. Other users of the brokers can write records with any content. So
// every record passes through [Parser] once, and the result has only valid values:
//
//   - Partitions and offsets are in range, so that they can be an index or a position.
//   - An entry matches its key: an object's key has the entry of an object's event, and a marker's
//     key has the entry of that kind of marker.
//   - UIDs, epochs, and versions are values that a forwarder can write.
//
// Anything else is an error with an [event.InvalidReason]. The caller reports it and
// continues as if the record did not exist.
//
// The package does not decide whether a valid record is authentic: a record that a
// forwarder could have written is accepted, whoever wrote it.
package record
