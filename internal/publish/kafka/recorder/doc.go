// Package recorder writes the checkpoint topic of a session, in the order that lets the next writer
// find every event.
//
// Package takeover decides what the records of the checkpoint topic mean after a crash.
package recorder
