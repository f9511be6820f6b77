// Package reader reads events from Kafka as any subscriber can: from the event topics alone. It does
// not know how the writer works, and does not read the checkpoint topic. So a verification that uses
// this package does not share the writer's mistakes.
//
// The package guarantees:
//
//   - It returns every record of each partition once and in order, even if connections break or
//     brokers restart. It does not order records of different partitions.
//   - It finds new topics and partitions within seconds and reads them from their start. A topic that
//     was deleted and recreated has another ID (KIP-516), and counts as new.
//   - It separates records that are not Kuberelay events from events, and reports them.
//
// The package does not guarantee the following:
//
//   - It does not return records that compaction, retention, or a broker removed before it read
//     them.
//   - After a topic is recreated, it can continue in the new topic at its offset in the old one, until
//     it looks up the topic's ID. It looks up about one topic per second. Then it reads the new topic
//     from the start, and returns for a second time the records that it has already returned.
//   - Before Kafka 2.8, topics have no IDs, and it finds that a topic was recreated only if a
//     partition is missing, or shorter than the part that was read.
//
// It writes nothing and joins no consumer group.
package reader
