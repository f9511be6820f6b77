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
//   - In both modes, the record key is the value of the partitionkey attribute, which the
//     event also contains (section 3.1). All events of an object are therefore in one
//     partition. Every client with Java's default partitioner selects the same partition.
//     See [Partition].
//   - The package can read the records of the CloudEvents SDK, and the SDK can read the records of
//     this package.
//   - No event of an object is a tombstone, because even a delete has data. [Encode] returns an
//     error for an event without data, and [Decode] returns [ErrTombstone] for a tombstone.
//     [Tombstone] returns the tombstone that follows a delete.
//   - A marker in an event topic has no value (see [EncodeControl]), so a table of the topic
//     contains no row for the marker.
//
// What it does not guarantee:
//
//   - The package does not check that the key of a record equals the partitionkey of its
//     event. Another writer might use a different key.
//   - The package supports only the JSON event format, and no batches of events.
package binding
