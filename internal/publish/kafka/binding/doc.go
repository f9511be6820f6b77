// Package binding converts events to Kafka records and back, as the CloudEvents Kafka
// protocol binding 1.0.2 specifies:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
//
// What it guarantees:
//
//   - In binary mode, each attribute is a header ce_<attribute> with the attribute's text
//     in UTF-8. datacontenttype is the header content-type, and data is the value of the
//     record. In structured mode, the value is the whole event, and content-type,
//     application/cloudevents+json, is the only header.
//   - In both modes, the key is the attribute partitionkey, which is also an attribute
//     (3.1). So the events of an object are in one partition, the same that every client
//     with Java's default partitioner selects: [Partition].
//   - It reads what the CloudEvents SDK writes, and the SDK reads what it writes.
//   - No event of an object is a tombstone, because a delete has data. [Encode] returns an
//     error for an event without data, and a reader gets [ErrTombstone] for a tombstone.
//     [Tombstone] returns the tombstone that follows a delete.
//   - A marker in an event topic has no value, see [EncodeControl], so a table of the topic
//     has no row of it.
//
// What it does not:
//
//   - It does not check that the key of a record is the partitionkey of its event. Another
//     writer may use another key.
//   - It supports only the JSON event format, and no batches.
package binding
