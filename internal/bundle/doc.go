// Package bundle creates the support bundle of `forwarder bundle`, and serves the parts that come from
// a running forwarder.
//
// [Handler] serves the goroutines, a heap profile, the last log lines, and the configuration. A
// [Collector] requests them and inspects the bus, read-only. The [Manifest] of the [Bundle] names
// the missing parts and the reasons.
//
// A bundle never has the content of an object or a secret. Function arguments are removed from the
// goroutine dump, a heap profile has no memory contents, and the log and the configuration never
// have such values. The log and errors can have names of objects.
package bundle
