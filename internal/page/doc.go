// Package page serves the status page of a forwarder: its files, and the stream of its data.
//
// The page shows the document of package status and the recent events. A stream sends each of them at
// most once a second, and only if it has changed. They are computed once for all streams, and not at all
// while no page is open. [Recent] remembers the events without allocating memory.
//
// With several clusters, the page has a row for each, and the parameter cluster selects the page of one.
//
// It guarantees:
//
//   - The page loads nothing from another host, and no other site can embed it, run a script in
//     it, or read its stream. Names of objects become text, never markup: the browser refuses
//     every way to turn a string into markup (Trusted Types).
//   - A stream has names of objects only if its caller allows it.
//   - The number of streams is limited, and so is the duration of a stream, so that a client whose
//     access is revoked loses its stream.
//
// It doesn't authorize requests: package operations decides who gets the page. It never has the content
// of an object.
package page
