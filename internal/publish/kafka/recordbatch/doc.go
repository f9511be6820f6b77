// Package recordbatch encodes Kafka record batches in format v2 (magic 2), as a producer sends them, and
// reads the batches of a fetch response: https://kafka.apache.org/documentation/#recordbatch and KIP-98. It
// performs no I/O. The project doesn't use kafka-go's own code for this, for two reasons. kafka-go cannot set
// the producer ID, epoch, and sequence number of a batch. It also reads a batch without bounds, although any
// producer can send one that unpacks to gigabytes.
//
// The package guarantees:
//
//   - The size of a batch is known exactly before a record is appended. [Batch.Size] is the exact
//     size that [Batch.Encode] writes without compression. Compression never makes a batch larger:
//     if it would, the batch is written uncompressed.
//   - The same records produce the same bytes. These are the bytes that franz-go, a tested
//     idempotent producer, writes at the same compression level, except for the framing of snappy.
//   - Nil stays nil, and empty stays empty: a nil value is a tombstone.
//   - A [Reader] reads the compressed batches of every client, and holds only one record in memory.
//     It returns an error for a batch that exceeds a limit or contradicts itself. It reads every
//     batch of Encode if the batch has at most [MaxUnpacked] bytes and each record at most
//     [MaxRecord] bytes.
//   - Encode does not change the batch. You can encode a batch again with another producer,
//     sequence number, or compression.
//   - Java consumers read all four compressions: snappy has the framing of snappy-java, and lz4
//     has independent blocks.
//
// The package does not do the following:
//
//   - It does not write transactional batches, control batches, or broker timestamps.
//   - It does not know the size limit of a broker (max.message.bytes, which applies to the
//     compressed batch). The caller checks [Batch.SizeWith].
//   - It does not decide whether a batch may be sent again. With the same producer, epoch, and
//     sequence number, a batch can always be sent again. With other values, it can only be sent
//     again if the broker certainly did not store it. Otherwise, it might be stored twice.
package recordbatch
