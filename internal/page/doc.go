// Package page serves the status page of a forwarder: its files, and the stream of its data.
//
// The page shows the status document of package status, and recent events. A stream sends each of the
// two at most once a second, and only if it changed or its ages need an update. The package computes
// the data once for all streams. While no page is open, it computes nothing. [Recent] records an event
// without allocating memory.
//
// With several clusters, the page has a row for each cluster. The query parameter cluster selects the
// page of one cluster.
//
// The package guarantees:
//
//   - The page loads nothing from another host. No other site can embed the page, run a script in
//     it, or read its stream. Names of objects become text, never markup: the browser refuses
//     every way to turn a string into markup (Trusted Types).
//   - A stream has names of objects only if the caller of [Page.Stream] allows it.
//   - The number of streams and the duration of each stream are limited. The time limit ends the
//     stream of a client whose access was revoked.
//
// The package doesn't authorize requests. Package operations decides who can open the page. The page
// never shows the content of an object.
package page
