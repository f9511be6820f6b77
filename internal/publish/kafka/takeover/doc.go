// Package takeover has the decisions of a writer that takes over the topics of a cluster. It does no
// I/O and has no clock, no goroutines and no locks: what was read goes in as values, and what is
// known, what must be read next and what may be written comes out.
//
// The caller works in these steps:
//
//  1. It writes its markers to the checkpoint topic, gives every record before them to
//     [Checkpoint.Read], and calls [Checkpoint.Finish].
//  2. It looks at the topics that exist or are recorded, and asks [UseOf] what each is used for.
//  3. It takes the event topics with [Checkpoint.Take] and writes its markers to them. Then it writes
//     what [Checkpoint.SetAside] says of all other topics.
//  4. It gives each [Topic] the bounds of its log ([Topic.Begin]), and reads what [Partition.Next]
//     asks for until nothing is left to read.
//  5. It looks up what [Topic.Lookups] asks for, and writes what [Topic.Update] says. Now
//     [Topic.Entries] has the last event of every key.
//
// The package guarantees, whatever the topics hold:
//
//   - A key whose last record is in the log before the marker is known, even if the checkpoint topic or
//     the log lost its end, or the topic was not visible to an earlier takeover.
//   - Entries count only if a record of the previous writer shows that the log still has what is
//     recorded. Otherwise the log is read from its start.
//   - The writes are in an order in which a crash between any two of them leaves a checkpoint topic
//     that the next takeover can use.
//
// It does not guarantee that a record is authentic. Package record rejects what no forwarder writes.
package takeover
