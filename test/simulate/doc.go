// Package simulate runs the core of the forwarder against models of a cluster and of a bus, NATS
// JetStream or Kafka, in one process and without concurrency. A path of seeds determines every
// choice: what happens in the cluster, which message is lost, which process runs next. The same path
// therefore replays the same history, and [Shrink] can shorten a failing history.
//
// The core is the product's own code: internal/forward, internal/ledger, internal/checkpoint,
// internal/reconcile, internal/resolve, internal/event, the bindings of internal/publish/nats, and
// internal/publish/kafka/takeover. The informers, the queue and the connection to the bus are
// models, because the product runs them in goroutines.
//
// known.go lists the known weaknesses of the forwarder that the oracle tolerates.
//
// One of eight histories follows a story. A story is a shrunk history that failed before a fix, or because of a
// planted bug. The history skips some actions of the story and adds others. To save a failing history as a story,
// write the lines that the command in directory run prints after the failure to a file in directory stories. These
// lines are the result of [Shrink]. After the fix, remove the actions that TestStories reports as no longer possible.
//
// A history is a sequence of steps. Each step performs one action (see [kind]). Core functions that
// block, such as a read of the bus, run as coroutines. A coroutine stops at each request and at each
// response, and a later step resumes it.
package simulate
