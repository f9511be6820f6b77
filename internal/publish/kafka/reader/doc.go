// Package reader reads events from Kafka as any subscriber can: from the event topics
// alone. It does not know how the events got there, and does not read the checkpoint topic,
// so that the verification of the writer does not share the writer's mistakes.
//
// What it guarantees:
//
//   - It returns every record of each partition, in order and once, however often
//     connections break or brokers restart. There is no order between partitions.
//   - It finds new topics and partitions within seconds and reads them from their start.
//   - It separates records that are not Kuberelay events from events, and reports them.
//
// What it does not:
//
//   - It does not return what compaction, retention or a broker removed before it was read.
//   - It reads a topic that was deleted and recreated from the start only after it noticed
//     that: when a partition is missing, or shorter than what was read of it. A recreated
//     topic that grows longer than that within moments is mistaken for the old one.
//
// It writes nothing and joins no consumer group.
package reader
