// Package topics knows which topics a forwarder writes to: their names, the settings that they
// need, which of them exist, and which of their settings risk the loss of acknowledged records.
//
// It creates a missing topic when the forwarder needs it. It never changes an existing topic, and
// writes no record.
package topics
