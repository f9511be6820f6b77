// Package takeover makes the decisions of a writer that takes over the topics of a cluster. It
// performs no I/O and uses no clock, goroutines, or locks. The caller passes in the records that it
// read, and the package returns the known state, the next reads, and the allowed writes.
//
// The caller works in these steps:
//
//  1. It writes its markers to the checkpoint topic, gives every record before them to
//     [Checkpoint.Read], and calls [Checkpoint.Finish].
//  2. It looks at each topic that exists or is recorded, and passes the result to [UseOf], which
//     returns the use of the topic.
//  3. It takes the event topics with [Checkpoint.Take] and writes its markers to them. Then it
//     writes the records of [Checkpoint.SetAside] for all other topics.
//  4. It sets the bounds of each partition's log with [Topic.Begin], and reads the ranges that
//     [Partition.Next] returns until nothing is left to read.
//  5. It looks up the events of [Topic.Lookups], and writes the records of [Topic.Update]. From
//     then on, [Topic.Entries] has the last event of every key.
//
// The package guarantees, whatever the topics hold:
//
//   - It knows every key whose last record is in the log before the marker, even if the checkpoint
//     topic or the log lost its end, or an earlier takeover could not see the topic.
//   - Entries count only if a record of the previous writer shows that the log still has the
//     recorded events. Otherwise, the log is read from its start.
//   - The order of the writes makes a crash between any two of them safe: it leaves a checkpoint
//     topic that the next takeover can use.
//
// It does not guarantee that a record is authentic. Package record rejects records that no forwarder
// writes.
package takeover
