// Package nats publishes to a NATS JetStream stream and reads it back.
//
// The stream is the feed, the replica, and the checkpoint: the last message of an object's subject
// is the state of the object, and [Bus.Load] reads the last message of every object.
//
// The package guarantees:
//
//   - Compare-and-set. Every event of an object names the position of the object's previous event
//     (Nats-Expected-Last-Subject-Sequence). The stream leader rejects the event if the subject's
//     last message is at another position. So neither a retry nor a stale writer can store a
//     message after a newer one.
//   - No duplicates. After a rejection, the package reads the last message of the subject from the
//     stream leader. If that is the same message, an earlier attempt was stored, and the publish
//     succeeds.
//   - No buffering. Without a connection, a publish fails at once. Messages in flight when the
//     connection breaks fail with an unknown outcome, which compare-and-set resolves at the next
//     attempt.
//   - [Bus.Publish] calls each done function exactly once, at the latest shortly after the
//     acknowledgement timeout. After a rejection, the same timeout applies to the read of the last
//     message.
//   - Logs and errors contain no message contents and no credentials.
//
// Limits:
//
//   - An acknowledgement is not an fsync. By default, a NATS server syncs every two minutes. The
//     operator decides what survives a power loss: replicas in separate zones, or sync_interval:
//     always.
//   - If an existing stream has wrong settings, the package returns an error that names the fix. It
//     does not change the settings, because others might use the stream. Only the stream of the built-in
//     server has no other users, so the package corrects it.
//
// Events use the CloudEvents NATS protocol binding. See package binding.
package nats
