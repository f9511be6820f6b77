// Package sizing computes how much memory a forwarder needs and how large its stream on NATS is, with
// the formulas in docs/sizing.md. It also has the CPU times on that page. "make bench" compares the
// constants for memory and CPU time with its measurements.
package sizing

import "time"

// Constants holds the constants of the formulas. They were measured with pods of 14 KB.
type Constants struct {
	// Base is the peak resident memory of a forwarder that watches nothing, in bytes.
	Base int64
	// Fixed is the memory that each object takes regardless of its size, in bytes: its names, and its
	// entries in the indexer and the checkpoint.
	Fixed int64
	// FirstSync is the additional memory of an object during a first sync, in bytes: its place in the
	// queue, and the data that is kept until the bus acknowledges the event.
	FirstSync int64
	// Deleted is the memory of a deleted object until its events are purged, in bytes: its entry in the
	// checkpoint, and a second entry while the forwarder reloads or searches the checkpoint. "make
	// bench" doesn't measure it. A separate test with 200,000 deletes did, on both buses.
	Deleted int64
	// Share is the size of an object's compressed content in memory, as a share of its size in a watch.
	// The size in a watch includes managedFields.
	Share float64
	// GC is the factor by which the heap can exceed the live memory before a garbage collection:
	// 1.3 with GOGC=30, which the forwarder sets.
	GC float64
	// InFlight is the maximum number of events in flight (KUBERELAY_NATS_MAX_IN_FLIGHT,
	// KUBERELAY_KAFKA_MAX_IN_FLIGHT). InFlightShare is the size of an event as a share of the object's
	// size.
	InFlight      int64
	InFlightShare float64
	// Envelope is the size of an event's subject and headers on NATS, in bytes.
	Envelope int64
	// Kafka is the additional memory for publishing to Kafka, in bytes: batches and their
	// compression.
	Kafka int64
	// PerObject is the CPU time that a pod of 14 KB takes at the first sync and at every start.
	// PerChange is the CPU time that a change takes, from the watch to the acknowledgement.
	PerObject, PerChange time.Duration
}

// Measured returns the constants of this version.
func Measured() Constants {
	return Constants{
		Base: 50_000_000, Fixed: 500, FirstSync: 550, Deleted: 900, Share: 0.09, GC: 1.3, InFlight: 512, InFlightShare: 0.65, Envelope: 800, Kafka: 20_000_000,
		PerObject: 280 * time.Microsecond, PerChange: 1100 * time.Microsecond,
	}
}

// Kept returns the memory of an object, in bytes, given its size in a watch.
func (c Constants) Kept(bytes int64) int64 { return c.Fixed + int64(c.Share*float64(bytes)) }

// Peak returns the peak resident memory, in bytes. bytes is the size of each object, and deletes is the
// number of deletes within the retention period.
func (c Constants) Peak(objects, deletes, bytes int64) int64 {
	held := float64(min(objects, c.InFlight)) * c.InFlightShare * float64(bytes)
	return c.Base + int64(c.GC*(float64(objects*(c.Kept(bytes)+c.FirstSync)+deletes*c.Deleted)+held))
}

// Stream returns the size of the stream on NATS, in bytes, if the stream keeps the given number of
// events for each object.
func (c Constants) Stream(objects, deletes, events, bytes int64) int64 {
	return int64(float64((objects+deletes)*events) * (c.InFlightShare*float64(bytes) + float64(c.Envelope)))
}

// Limit returns the recommended memory limit, in MiB, for a peak in bytes. It is a multiple of 16.
func Limit(peak int64) int64 { return (peak*5/4>>20 + 15) / 16 * 16 }
