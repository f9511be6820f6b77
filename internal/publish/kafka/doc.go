// Package kafka publishes to Kafka, and keeps there what has been acknowledged.
//
// What it guarantees, with [Options.Idempotent]:
//
//   - Every event is in its topic once, and the events of one object are in the order
//     in which they were published, whatever requests, answers, connections or
//     brokers are lost on the way.
//   - There is one writer for a cluster. A new one takes over before its first
//     event, and from then on the brokers refuse the one before it, in every
//     partition: [publish.ErrGone] says so there.
//   - What was stored is known after a crash at any point, whether its
//     acknowledgement arrived or not: nothing is repeated and nothing is left out.
//
// Without, events may be there twice, with the same ids, and two writers at a time are
// not noticed.
//
// Kafka-go has no idempotent producer. This one is made of its InitProducerID and
// RawProduce: batches with a producer id, epoch and sequence numbers (KIP-98), one in
// flight for each partition ([lane]). A [session] is the life of one epoch. It ends at
// whatever leaves doubt, and the next begins as that of any new writer does, in
// [Bus.takeOver]:
//
//  1. InitProducerID gives it a new epoch.
//  2. It writes a marker into every partition of the event topics and of the
//     checkpoint topic. From there on the broker refuses older epochs in that
//     partition.
//  3. It reads the checkpoint topic to its end.
//  4. It reads each event partition from the highest offset that the checkpoint topic
//     has of it to the marker. Now it knows all that is stored, and nothing else can
//     be.
//
// The fourth step finds everything only because the records of a partition's events
// come into the checkpoint topic in the order of their offsets: see [recorder].
//
// What it does not guarantee: a topic that its brokers lose, or that somebody deletes
// or truncates, is noticed when the checkpoint is next read, and written again then.
package kafka
