// Package broker is a client for one Kafka cluster. It provides what an idempotent producer
// needs: topics, producer IDs, single produce attempts, and reads by offset. It
// uses the Client and the Transport of kafka-go. It does not batch records, and leaves the
// reaction to a failed write to the caller.
//
// What it guarantees:
//
//   - [Client.Ensure] creates a missing topic and checks an existing one. If an existing topic
//     has wrong settings, the error names them and the command that fixes them. The package
//     never changes an existing topic.
//   - [Client.Produce] makes one attempt, and waits for all in-sync replicas. The package
//     never repeats the attempt, because only the owner of the sequence numbers may do that.
//   - [Client.Read] delivers every record in the requested range of the log, in order and
//     once, and reports the offset from which the records are complete. It skips only batches
//     that cannot be read, and reports them. It does not skip records that a broker failed to
//     deliver.
//   - Batches of other producers cannot exhaust the memory. Whatever the batches contain, all
//     reads together hold at most two records of [recordbatch.MaxRecord] bytes. For each CPU,
//     they also hold two small records and the memory to decompress them, up to 16 MiB each.
//   - When a response proves that metadata is stale, the client fetches the metadata again
//     before its time to live ends.
//   - Clients can share their connections ([Shared]). A request without a response
//     delays no request of another Client. A Client that closes ends only its own requests.
//   - Every new connection uses the current contents of the password, certificate, key, and CA
//     files. Connections made before a change are replaced within 10 s, plus the duration of their
//     current request.
//   - Logs and errors contain no credentials and no record contents.
//
// What it does not guarantee:
//
//   - The package does not know whether the brokers stored the batch of a failed Produce. After a
//     timeout or a broken connection, the batch might be stored. [failure.KindOf] classifies the
//     error.
//   - It does not reauthenticate an open connection (KIP-368, not in kafka-go). A broker
//     with connections.max.reauth.ms closes the connection, which causes an error of the kind
//     [failure.Retry].
//   - An acknowledgement is not an fsync. The topic's replicas and its min.insync.replicas
//     determine which records survive a power loss.
package broker
