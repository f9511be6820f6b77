// Package recordbatch encodes Kafka record batches, format v2 (magic 2), as a producer
// sends them, and reads the batches of a fetch response:
// https://kafka.apache.org/documentation/#recordbatch and KIP-98. It does no I/O. kafka-go
// itself cannot set the producer ID, epoch and sequence of a batch. And it reads a batch
// without bounds, although any producer can send one that unpacks to gigabytes.
//
// What it guarantees:
//
//   - The size of a batch is known exactly before a record is appended. [Batch.Size] is the
//     exact size that [Batch.Encode] writes without compression. Compression never makes a
//     batch larger: if it would, the batch is written uncompressed.
//   - The same records produce the same bytes. These are the bytes of franz-go, a tested
//     idempotent producer, except for the framing of snappy.
//   - Nil stays nil, and empty stays empty: a nil value is a tombstone.
//   - A [Reader] reads what any client compresses, in memory for one record. It returns an
//     error for a batch that is over a limit or lies about its content. It reads every batch
//     of Encode whose size is at most [MaxUnpacked], and that of its records [MaxRecord].
//   - Encode does not change the batch. You can encode a batch again with another producer,
//     sequence or compression; [Restamp] does that to an encoded batch.
//   - Java consumers read all four compressions: snappy has the framing of snappy-java, and
//     lz4 has independent blocks.
//
// What it does not:
//
//   - It writes no transactional batches, no control batches, and no broker timestamps.
//   - It does not know the size limit of a broker (max.message.bytes, which applies to the
//     compressed batch). The caller uses [Batch.SizeWith].
//   - It does not decide whether a batch may be sent again. With the same producer, epoch
//     and sequence it always may. With another stamp it may only if the broker certainly
//     did not store it; otherwise it can be stored twice.
package recordbatch
