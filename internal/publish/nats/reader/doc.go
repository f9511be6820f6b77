// Package reader reads a NATS JetStream stream as any subscriber can. It knows nothing about the
// writer. So a verification that uses this package does not share the writer's mistakes.
//
// The package guarantees:
//
//   - [Bus.Subscribe] neither misses nor repeats messages, even if connections break or servers
//     restart.
//   - Messages that are not Kuberelay events are reported separately from events.
//
// The package writes nothing and creates no stream. It does not return messages that the stream
// drops before it reads them.
package reader
