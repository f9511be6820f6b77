// Package reader reads a stream of NATS JetStream as any subscriber can. It knows nothing of
// the writer, so that the verification of the writer does not share the writer's mistakes.
//
// What it guarantees:
//
//   - [Bus.Subscribe] misses nothing and repeats nothing, however often connections break
//     or servers restart.
//   - Messages that are not Kuberelay events are reported apart from events.
//
// It writes nothing and creates no stream. What the stream drops before it is read is not
// returned.
package reader
