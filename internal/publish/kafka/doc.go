// Package kafka publishes events to Kafka. It keeps a checkpoint of the acknowledged events in a
// separate topic.
//
// With [Options.Idempotent] it guarantees:
//
//   - Every event is in its topic exactly once, and the events of one object are in the order in
//     which they were published. This is true even if requests, responses, or connections are lost,
//     or brokers fail.
//   - A cluster has one writer. A new writer takes over before its first event. From then on, the
//     brokers reject the previous writer in every partition, and the previous writer reports
//     [publish.ErrGone].
//   - After a crash at any point, the next writer determines which events were stored, whether or
//     not their acknowledgements arrived. It repeats no event and leaves out no event.
//
// Without [Options.Idempotent], an event can be in its topic twice, with the same ID, and
// concurrent writers are not detected.
//
// kafka-go has no idempotent producer. This package builds one from InitProducerID and RawProduce:
// batches with a producer ID, an epoch, and sequence numbers (KIP-98), and one batch in flight per
// partition ([sender.Sender]). A [session] is the lifetime of one producer epoch. It ends at an
// error after which the session can't know which records are stored. The next session starts like
// any new writer, in [Bus.takeOver]:
//
//  1. InitProducerID assigns a new epoch.
//  2. The session writes a marker to every partition of the checkpoint topic. After the marker, the
//     broker rejects older epochs in that partition. Then the session reads the checkpoint topic up
//     to its markers. The checkpoint topic also names the event topics.
//  3. The session writes a marker to every partition of the event topics.
//  4. The session reads each event partition up to its marker. It starts after the highest offset
//     that the checkpoint topic has for the partition, or at a lower offset that the last session left
//     unread. Now the session knows every stored event, and no other writer can store another one.
//
// Step 4 finds every event for two reasons. First, the checkpoint records of one event partition,
// including those of its markers, are in one partition of the checkpoint topic, in the order of
// their offsets (see [recorder.Recorder]). Second, the session reads an event partition from its start if
// the partition does not match its checkpoint records. Package takeover makes these decisions.
// Package reload makes the decisions of a later [Bus.Load]. This package performs their reads and
// writes.
//
// With [Options.Tombstones], a tombstone follows each delete in the same batch. The two records form
// one delete, and its position is the offset of the first record. The headers of the tombstone
// identify the delete, because compaction can remove the delete first ([binding.Tombstone]).
//
// A partition without a leader, or with a leader that hangs, does not delay the others. Each
// partition has a share of the in-flight limit, and a stalled partition returns its waiting events
// to the caller.
//
// The package does not guarantee that it detects the loss of a topic at once. If the brokers lose a
// topic, or somebody deletes or truncates it, the next load of the checkpoint detects the loss, and
// the forwarder publishes the events again.
package kafka
