// Package recordbatch encodes Kafka record batches, format v2 (magic 2), as a
// producer sends them: https://kafka.apache.org/documentation/#recordbatch and
// KIP-98. It does no I/O. kafka-go's RawProduce takes what it makes; kafka-go itself
// cannot put a producer id, an epoch and a sequence into a batch.
//
// What it guarantees:
//
//   - A batch's size is known exactly before a record is appended. [Batch.Size] is to
//     the byte what [Batch.Encode] gives without compression, and no compression makes
//     it larger: where one would, the batch is written without.
//   - The same records give the same bytes, and these are the bytes of franz-go, a tested
//     idempotent producer; only its snappy has another framing.
//   - What is nil stays nil and what is empty stays empty: a nil value is a tombstone.
//   - Encode changes nothing in the batch. It may be repeated with another producer,
//     sequence or compression; [Restamp] does that to bytes already compressed.
//   - Consumers in Java read all four compressions: snappy is in the framing of
//     snappy-java, lz4 in independent blocks.
//
// What it does not:
//
//   - It writes neither transactional batches nor control batches, nor timestamps of
//     the broker's.
//   - It does not know a broker's limit (max.message.bytes, which holds for the batch
//     as it is sent, compressed): [Batch.SizeWith] and [Batch.Split] are for the caller.
//   - It does not decide whether a batch may be sent again. Under the same producer,
//     epoch and sequence it may always; stamped anew only if the broker certainly
//     did not store it, or it is stored twice.
package recordbatch
