// Package sizing says how much memory and CPU a forwarder needs: the formula of
// docs/sizing.md, with its constants, which "make bench" compares with what it measures.
package sizing

import (
	_ "embed"
	"fmt"
	"io"
	"text/template"
	"time"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
)

// Constants are those of the formula, as measured by "make bench" on pods of 14 KB.
type Constants struct {
	// Base is the peak resident memory of a forwarder that watches nothing, in bytes.
	Base int64
	// Fixed is what an object takes however small it is: its names, its place in the
	// indexer and the checkpoint.
	Fixed int64
	// FirstSync is what it takes besides during a first sync: its place in the queue, and
	// what is remembered until the bus has it.
	FirstSync int64
	// Deleted is what a deleted object takes until its events are purged: its entry in the
	// checkpoint, and a second one while the checkpoint is read again or looked through. It
	// was measured with 200,000 deletes, on either bus, apart from "make bench".
	Deleted int64
	// Share is the part of an object's bytes in a watch, managedFields included, that is
	// kept of it, compressed.
	Share float64
	// GC is by how much the heap may grow beyond what is live until it is collected: 1.3 with
	// GOGC=30, which the forwarder sets.
	GC float64
	// InFlight is how many events are held, at most, while the bus has not acknowledged
	// them (KUBERELAY_NATS_MAX_IN_FLIGHT, KUBERELAY_KAFKA_MAX_IN_FLIGHT), and InFlightShare
	// the part of an object's bytes that one is.
	InFlight      int64
	InFlightShare float64
	// Envelope is what an event takes on NATS besides the object: subject and headers.
	Envelope int64
	// Kafka is what publishing there takes besides, in bytes: batches, and their compression.
	Kafka int64
	// PerObject is the CPU time of a pod of 14 KB at the first sync and at every start, and
	// PerChange that of its change, from the watch to the acknowledgement.
	PerObject, PerChange time.Duration
}

// Measured are the constants of this version.
func Measured() Constants {
	return Constants{
		Base: 50_000_000, Fixed: 500, FirstSync: 550, Deleted: 900, Share: 0.09, GC: 1.3, InFlight: 512, InFlightShare: 0.65, Envelope: 800, Kafka: 20_000_000,
		PerObject: 280 * time.Microsecond, PerChange: 1100 * time.Microsecond,
	}
}

// Kept is what remains in memory of an object of so many bytes in a watch.
func (c Constants) Kept(bytes int64) int64 { return c.Fixed + int64(c.Share*float64(bytes)) }

// Peak is the peak resident memory, in bytes, with so many objects of so many bytes each,
// and so many deletes within the retention.
func (c Constants) Peak(objects, deletes, bytes int64) int64 {
	held := float64(min(objects, c.InFlight)) * c.InFlightShare * float64(bytes)
	return c.Base + int64(c.GC*(float64(objects*(c.Kept(bytes)+c.FirstSync)+deletes*c.Deleted)+held))
}

// Stream is the size of the stream on NATS, in bytes, where so many events of each object
// are kept.
func (c Constants) Stream(objects, deletes, events, bytes int64) int64 {
	return int64(float64((objects+deletes)*events) * (c.InFlightShare*float64(bytes) + float64(c.Envelope)))
}

//go:embed sizing.md.tmpl
var page string

// history is the default of KUBERELAY_NATS_HISTORY.
const history = 8

// example is a row of the page's table.
type example struct {
	Of                          string
	Objects, Deletes, Bytes, MB int64
	Limit                       int64 // MiB to ask for
	StreamGB                    string
}

// WritePage writes docs/sizing.md.
func WritePage(w io.Writer) error {
	c := Measured()
	t, err := template.New("sizing.md").Funcs(template.FuncMap{
		"mb":      func(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/1e6) },
		"percent": func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) },
		"ms":      func(d time.Duration) string { return fmt.Sprintf("%.2g", d.Seconds()*1e3) },
	}).Parse(page)
	if err != nil {
		return err
	}
	var examples []example
	for _, e := range []example{
		{Of: "ConfigMaps of a small cluster", Objects: 1_000, Bytes: 3_000},
		{Of: "pods", Objects: 5_000, Bytes: 14_000},
		{Of: "pods", Objects: 20_000, Bytes: 14_000},
		{Of: "pods, one replaced per second", Objects: 20_000, Deletes: 86_400, Bytes: 14_000},
		{Of: "pods, five replaced per second", Objects: 20_000, Deletes: 432_000, Bytes: 14_000},
		{Of: "pods of the largest clusters", Objects: 100_000, Bytes: 14_000},
		{Of: "small custom resources", Objects: 100_000, Bytes: 3_000},
	} {
		peak := c.Peak(e.Objects, e.Deletes, e.Bytes)
		e.MB, e.Limit = (peak+500_000)/1_000_000, roundUp(peak*5/4>>20, 16)
		e.StreamGB = fmt.Sprintf("%.2g", float64(c.Stream(e.Objects, e.Deletes, history, e.Bytes))/1e9)
		examples = append(examples, e)
	}
	return t.Execute(w, struct {
		Constants
		Kept14  int64
		Start   time.Duration // of 20,000 pods
		History int64
		// DefaultDeletes is the default of KUBERELAY_MAX_DELETES with a memory limit of 256Mi,
		// of which GOMEMLIMIT is nine tenths.
		DefaultDeletes int
		Rows           []example
	}{c, c.Kept(14_000), 20_000 * c.PerObject, history, checkpoint.MaxDeletes(256 << 20 * 9 / 10), examples})
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
