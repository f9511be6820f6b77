// Package stream is a connection to one stream of NATS JetStream, which the writer and the
// readers of the stream share: it connects, keeps checking the stream, follows the
// credential files, and reads messages.
//
// What it guarantees:
//
//   - An unreachable server is retried forever. Ready reports a server that stops
//     responding within 10 s.
//   - Single messages, and the end of the stream, are read from the leader of the stream.
//     A replica may be behind it.
//   - A connection whose credential files changed is replaced, once the server accepts the
//     new ones.
//   - Conns that share a connection ([Shared]) wait for one another only while it is replaced for
//     new credentials, and for their turn to load. A Conn that closes leaves it to the others.
//   - Logs and errors contain no message contents and no credentials.
//
// It publishes nothing and changes nothing: [Hooks.Check] may create the stream.
package stream
