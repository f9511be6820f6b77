// Package stored reads what the topics of a cluster hold: events, checkpoint entries, the owner of the
// cluster name, and the last writer.
//
// It reports and skips records that no forwarder writes, and batches that cannot be read. It decides
// nothing, and writes nothing.
package stored
