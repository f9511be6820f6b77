// Package wire parses the messages on the bus for verify: subjects, record keys, CloudEvents in
// each protocol binding, and the attributes and data of Kuberelay. It follows docs/events.md and
// the CloudEvents specifications, and shares no code with the forwarder, so that it finds
// mistakes that the forwarder makes both when it writes and when it reads. It imports no other
// package of the project; a test of package verify enforces this.
//
// It is strict. Everything has one spelling, the one in docs/events.md. Any other is an error
// that verify reports: an unnecessary escape, a number without leading zeros, an attribute that
// occurs twice. No input makes it panic.
package wire
