// Package binding turns an event into a Kafka record and back, by the CloudEvents Kafka
// protocol binding 1.0.2:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
//
// What it guarantees:
//
//   - In binary mode, each attribute is a header ce_<attribute> and its value the
//     attribute's text as it is, in UTF-8; datacontenttype is the header content-type, and
//     data the record's value. In structured mode the value is the whole event, and
//     content-type, application/cloudevents+json, the only header.
//   - In both modes the key is the attribute partitionkey, which is an attribute all
//     the same (3.1). So an object's events are in one partition, the one where every client
//     puts them whose partitioner is Java's: [Partition].
//   - What the CloudEvents SDK writes, it reads, and the other way around.
//   - No event of ours is a tombstone: a delete has data. [Encode] refuses an event that
//     has none, and a reader is told of a tombstone by [ErrTombstone].
//
// What it does not:
//
//   - It does not check that the key of a record that is read is the event's partitionkey;
//     another writer may have chosen another.
//   - Of the event formats it knows JSON only, and no batches.
package binding
