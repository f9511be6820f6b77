// Package broker is a client for one Kafka cluster with what an idempotent producer needs:
// topics, producer IDs, single produce attempts, and reads by offset. It uses the Client
// and the Transport of kafka-go. It neither batches nor decides.
//
// What it guarantees:
//
//   - A topic is correct, or an error names what is wrong and the command that fixes it
//     ([Client.Ensure]). An existing topic is never changed.
//   - [Client.Produce] is one attempt, acknowledged by all in-sync replicas. The package
//     never repeats it: only the owner of the sequence numbers may do that.
//   - [Client.Read] returns every record that the log holds in its range, in order and
//     once, and reports the offset from which that is true. It skips only batches that cannot
//     be read, and reports them. It does not skip records that a broker failed to deliver.
//   - Batches of other producers cannot fill the memory. Whatever they contain, all reads
//     together hold at most two records of [recordbatch.MaxRecord] bytes, and for each CPU
//     two small records and what their compression needs, up to 16 MiB each.
//   - Metadata that a response proves stale is fetched again with the next request, before
//     its time to live ends.
//   - Clients can share their connections ([Shared]). A request of one that is not answered delays
//     none of another, and a Client that closes ends its own requests only.
//   - Every new connection uses the current contents of the password, certificate, key and
//     CA files. Connections made before a change are replaced within 10 s, plus the
//     duration of their current request.
//   - Logs and errors contain no credentials and no record contents.
//
// What it does not:
//
//   - It does not know whether a failed Produce was stored; [KindOf] classifies the error.
//     After a timeout or a broken connection, the batch may be stored.
//   - It does not reauthenticate an open connection (KIP-368, not in kafka-go). A broker
//     with connections.max.reauth.ms closes the connection, which is an error of the kind
//     [Retry].
//   - An acknowledgement is not an fsync. The replicas of the topic and its
//     min.insync.replicas determine what survives a power loss.
package broker
