// Package index has the position of the last event of every object, and the objects that have an
// event in flight. It is the compare-and-set that Kafka lacks, and is exact because a cluster has
// only one writer.
package index
