// Package sender sends the records of one partition with an idempotent producer: batches with a
// producer ID, an epoch, and sequence numbers (KIP-98), and one batch in flight.
//
// Every record is stored once, in the order of [Sender.Add], while the producer stays the writer. A
// sender ends the session of its producer when it cannot tell which records are stored.
//
// A sender also knows which offsets of its partition it has not written, so that the session can
// read what other writers stored there.
package sender
