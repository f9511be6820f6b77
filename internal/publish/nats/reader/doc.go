// Package reader reads a NATS JetStream stream as any subscriber can. It uses no state of the writer,
// so a verification that uses this package sees what the stream holds, not what the writer believes.
//
// The package guarantees:
//
//   - [Bus.Subscribe] neither misses nor repeats messages, even if connections break or servers
//     restart.
//   - Messages that are not Kuberelay events are reported separately from events.
//
// The package stores no messages and creates no stream. It does not return messages that the stream
// dropped before the package could read them.
package reader
