// Package stream connects to one stream of NATS JetStream. The writer and the readers of the stream
// both use it. The package keeps checking the stream, watches the credential files, and reads
// messages.
//
// The package guarantees:
//
//   - It retries an unreachable server forever. If a server stops responding, Ready returns an
//     error within 10 s.
//   - It reads single messages, and the end of the stream, from the stream leader, because a
//     follower might be behind.
//   - It replaces a connection whose credential files changed, as soon as the server accepts the
//     new credentials.
//   - Conns that share a connection ([Shared]) wait for one another only in two cases: while the
//     connection is replaced for new credentials, and for their turn to load. A Conn that closes
//     leaves the connection to the others.
//   - Logs and errors contain no message contents and no credentials.
//
// The package itself stores no messages and does not change the stream. [Hooks.Check] can create it.
package stream
