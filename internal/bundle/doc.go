// Package bundle makes the support bundle of `forwarder bundle`, and the parts of it that a running
// forwarder serves.
//
// [Source] serves the goroutines, a heap profile, the last log lines and the configuration. [Collect]
// collects parts, and [Write] packs them with a [Manifest], which says what is missing and why.
//
// Nothing in a bundle is the content of an object or a secret: the goroutines have no arguments, a heap
// profile has no memory, and the log and the configuration have no such value in the first place. Names of
// objects can be in the log and in errors.
package bundle
