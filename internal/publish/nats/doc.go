// Package nats publishes to a stream of NATS JetStream and reads it back.
//
// The stream is at once the feed, the replica and the checkpoint: the last
// message of an object's subject is its state, and [Bus.Load] reads all of them.
//
// What it guarantees:
//
//   - Compare-and-set. Every event of an object names the position of the
//     object's last event (Nats-Expected-Last-Subject-Sequence). The stream's
//     leader refuses it where another event is there, so neither a retry nor a
//     stale writer can put a message after a newer one.
//   - No duplicates. Where a message is refused, the subject's last message is
//     read through the stream's leader; if it is the very message, an earlier
//     attempt had landed and the publish has succeeded.
//   - Nothing is buffered for later. While the connection is down a publish
//     fails at once; what was in flight when it broke fails with an unknown
//     outcome, which compare-and-set resolves at the next attempt.
//   - Every completion is called exactly once, within the acknowledgement timeout
//     and at most as much again for the read that resolves a refusal.
//   - Contents and credentials are in no log line and in no error.
//
// What it does not:
//
//   - An acknowledgement is not an fsync. By default a NATS server syncs every two
//     minutes; what that means for a power loss is the operator's choice
//     (replicas in separate zones, or sync_interval: always).
//   - It does not make a stream right that is wrong. An existing stream with
//     other settings is an error that says the fix, since to change a stream
//     that others use is not its business.
//
// Events travel by the CloudEvents NATS protocol binding, see [Decode].
package nats
