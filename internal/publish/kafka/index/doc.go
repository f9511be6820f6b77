// Package index records the position of every object's last event, and which objects have an event
// in flight. It replaces the compare-and-set that Kafka lacks. The index is exact as long as a
// cluster has only one writer.
package index
