// Package kafka publishes events to Kafka, and keeps a checkpoint of the acknowledged
// events in a topic of its own.
//
// With [Options.Idempotent] it guarantees:
//
//   - Every event is in its topic once, and the events of one object are in the order in
//     which they were published, even if requests, responses, connections or brokers are
//     lost.
//   - A cluster has one writer. A new writer takes over before its first event. From then
//     on the brokers reject the previous writer in every partition, and the previous writer
//     reports [publish.ErrGone].
//   - After a crash at any point the next writer finds out what was stored, whether the
//     acknowledgement arrived or not. Nothing is repeated and nothing is left out.
//
// Without it, events can be in the topic twice, with the same IDs, and two concurrent
// writers go undetected.
//
// kafka-go has no idempotent producer. This package builds one from InitProducerID and
// RawProduce: batches with a producer ID, an epoch and sequence numbers (KIP-98), and one
// batch in flight per partition ([sender]). A [session] is the lifetime of one producer
// epoch. It ends at any error after which it is unknown what is stored. The next session
// starts like any new writer, in [Bus.takeOver]:
//
//  1. InitProducerID assigns a new epoch.
//  2. The session writes a marker to every partition of the checkpoint topic. After the
//     marker, the broker rejects older epochs in that partition. Then the session reads
//     the checkpoint topic to its end. The checkpoint topic also names the event topics.
//  3. The session writes a marker to every partition of the event topics.
//  4. The session reads each event partition from the highest offset in the checkpoint
//     topic, or from a lower one that the last session left unread, to the marker. Now it
//     knows everything that is stored, and nothing else can be stored.
//
// Step 4 finds every event for two reasons. The checkpoint records of one event partition,
// including its markers, are in one partition of the checkpoint topic in the order of their
// offsets (see [recorder]). And a partition that does not match its checkpoint records is
// read from its start. Package takeover makes these decisions; this package does the reads and
// writes for them.
//
// With [Options.Tombstones], the tombstone of a delete is the next record of the same batch.
// It is part of the delete, whose position is its own offset. The tombstone identifies the
// delete, because compaction can remove the delete first ([binding.Tombstone]).
//
// A partition without a leader, or with a leader that hangs, does not delay the others.
// Each partition has a share of the in-flight limit, and a stalled partition returns its
// waiting events to the caller.
//
// It does not guarantee that the loss of a topic is noticed at once. If the brokers lose a
// topic, or somebody deletes or truncates it, the next read of the checkpoint notices, and the
// events are written again.
package kafka
