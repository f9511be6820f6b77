// Package broker is one Kafka cluster as an idempotent producer needs it: topics,
// producer ids, single attempts at producing, and reading by offset. It stands on the
// Client and the Transport of kafka-go, and neither batches nor decides.
//
// What it guarantees:
//
//   - A topic is right or an error says what is wrong with it and the command that mends
//     it ([Client.Ensure]). An existing topic is never changed.
//   - [Client.Produce] is one attempt, acknowledged by all in-sync replicas. It is never
//     repeated here: only who holds the sequence may do that.
//   - [Client.Read] gives every record that the log holds in its range, in order and once,
//     and says from which offset on that is true. It does not skip what a broker merely
//     failed to deliver.
//   - Metadata that an answer has proved stale is fetched again with the next request,
//     not after its time to live.
//   - Every new connection uses what is in the files of password, certificate, key and
//     authorities at that moment; connections made before a change are replaced within
//     10 s of it, plus the time of the request that they are in.
//   - Credentials are in no log line and in no error, and no record's content either.
//
// What it does not:
//
//   - It does not know whether a failed Produce was stored ([KindOf] tells the kinds of
//     failure). After a timeout or a broken connection it may have been.
//   - It does not authenticate anew on a connection that is open (KIP-368, not in
//     kafka-go). A broker with connections.max.reauth.ms closes it, which is a failure
//     of the kind [Retry].
//   - An acknowledgement is not an fsync: what a power loss takes is decided by the
//     topic's replicas and its min.insync.replicas.
package broker
