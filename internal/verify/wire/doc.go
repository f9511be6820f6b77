// Package wire parses the messages on the bus for verify: subjects, record keys, CloudEvents in
// each protocol binding, and the attributes and data of Kuberelay. It follows docs/events.md and
// the CloudEvents specifications. It shares no code with the forwarder, so that it finds mistakes
// that the forwarder makes both when it writes and when it reads. It imports no other package of
// the project. A test of package verify enforces this.
//
// The parsers are strict. Every value has exactly one valid spelling, which docs/events.md defines.
// Any other spelling is an error that verify reports, for example an unnecessary escape, a number
// without leading zeros, or an attribute that occurs twice. No input makes a parser panic.
package wire
