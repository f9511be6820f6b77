// Package replica rebuilds the state of every object from the bus, for verify. A [Follower] reads
// the bus in order, from its oldest message. It keeps the last event of each object, and records
// messages that are malformed or out of order.
//
// It parses messages with package wire. Of the forwarder's publishing code, it uses only the parts
// that open a bus and deliver raw messages.
package replica
