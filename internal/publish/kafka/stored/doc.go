// Package stored reads what the topics of a cluster hold: the entries of events and of the
// checkpoint topic, the owner of the cluster name, and the last writer.
//
// It reports records that no forwarder writes, and batches that cannot be read, and continues
// without them. It decides nothing, and writes nothing.
package stored
