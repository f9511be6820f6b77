// Package reader reads events from Kafka, as any subscriber could: from the event
// topics alone. It knows nothing of how they got there, nor of the checkpoint topic,
// so that what verifies the writer does not share its mistakes.
//
// What it guarantees:
//
//   - Of each partition it gives every record that is there, in order and once, however
//     often connections break or brokers restart. Between partitions there is no order.
//   - Topics and partitions that come into being later are found within seconds, and
//     read from their start.
//   - What is no event of ours is told apart from events, and said so.
//
// What it does not:
//
//   - What compaction, retention or a broker removed before it was read does not come.
//   - A topic that was deleted and made anew is read from its start once it is noticed,
//     which is when a partition is missing or shorter than what was read of it. One that
//     grows longer than that within moments is taken for the old one.
//
// It writes nothing, and is in no consumer group.
package reader
