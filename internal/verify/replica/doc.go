// Package replica rebuilds the state of every object from the bus, for verify. A [Follower] reads
// the bus in order, from its oldest message. It keeps the last event of each object, and records
// messages that are malformed or out of order.
//
// It parses messages with package wire. Of the packages that the forwarder uses to write, it uses
// only the code that opens a bus and delivers raw messages.
package replica
