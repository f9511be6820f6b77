// Package page serves the status page of a forwarder: its files, and a stream of what it shows.
//
// The page shows the document of package status. A stream sends it at most once a second and only
// if it has changed, and what was published lately beside it. It is computed once for all streams,
// and not at all while no page is open. [Recent] remembers the events, which costs no allocation.
//
// What it guarantees:
//
//   - The page loads nothing from another host, and no other site can embed it, run a script in
//     it, or read its stream. Names of objects become text, never markup: the browser refuses
//     every way to turn a string into markup (Trusted Types).
//   - A stream gets names of objects only if its caller says so.
//   - The number of streams is bounded, and so is the time that one lasts, so that a right that is
//     withdrawn ends.
//
// What it does not: it authorizes nobody, and has no content of objects. Package operations decides
// who gets the page.
package page
