// Package simulate runs the core of the forwarder against models of a cluster and of NATS
// JetStream, in one process and without concurrency. A seed determines every choice: what
// happens in the cluster, which message is lost, which process runs next. A seed therefore
// replays exactly, and a failing history can be shrunk.
//
// The core is the product's own code: internal/forward, internal/ledger, internal/checkpoint,
// internal/reconcile, internal/resolve, internal/event and the bindings of internal/publish/nats.
// The informers, the queue and the connection to the bus are models, because the product runs them
// in goroutines.
//
// known.go has the known weaknesses of the forwarder, which the oracle tolerates.
//
// A history has a number of steps. Each step performs one action (see [kind]). Functions of the
// core that block, such as a read of the bus, are coroutines: they stop at each request and at
// each answer, and a later step continues them.
package simulate
