package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/hack/bench/sizing"
)

// sinks are the contenders that are the forwarder, of those that ran.
func (r *synced) sinks() (names []string) {
	for _, name := range []string{toNATS, toKafka, toStdout} {
		if r.has(name) {
			names = append(names, name)
		}
	}
	return names
}

// of gives one value of every run of a contender.
func (r *synced) of(name string, value func(sample) float64) series {
	var s series
	if r.has(name) {
		for _, m := range r.runs[name].samples {
			s = append(s, value(m))
		}
	}
	return s
}

func (r *synced) has(name string) bool { return r.runs[name] != nil }

func (r *synced) seconds(name string, of func(sample) time.Duration) series {
	return r.of(name, func(m sample) float64 { return of(m).Seconds() })
}

func (r *synced) syncedIn(name string) series {
	return r.seconds(name, func(m sample) time.Duration { return m.synced })
}

func (r *synced) ackedIn(name string) series {
	return r.seconds(name, func(m sample) time.Duration { return m.acked })
}

func (r *synced) readyAgainIn() series {
	return r.seconds(toNATS, func(m sample) time.Duration { return m.again.ready })
}

func (r *synced) eventsAgain() series {
	return r.of(toNATS, func(m sample) float64 { return float64(m.again.events) })
}

// cpu is in microseconds for each object, what the process needs to start included.
func (r *synced) cpu(name string) series {
	return r.of(name, func(m sample) float64 { return float64(m.cpu.Microseconds()) / float64(r.pods) })
}

func (r *synced) peak(name string) series {
	return r.of(name, func(m sample) float64 { return megabytes(m.peak) })
}

// kept is what an object takes of the heap: the live heap less that of a process that
// has nothing to watch.
func (r *synced) kept(name string) series {
	return r.of(name, func(m sample) float64 { return (float64(m.Live) - float64(r.runs[name].empty.Live)) / float64(r.pods) })
}

func (r *synced) allocations(name string) series {
	return r.of(name, func(m sample) float64 {
		return (float64(m.Mallocs) - float64(r.runs[name].empty.Mallocs)) / float64(r.pods)
	})
}

// addSync adds the tables of a cluster, and what is promised of it.
func (r *report) addSync(f synced) {
	s := section{title: fmt.Sprintf("First sync of %d pods of %d bytes", f.pods, f.wireBytes)}
	s.table.head = []string{
		"", "synced, s", "acknowledged, s", "× floor", "CPU/object, µs", "× floor", "÷ plain informer",
		"peak, MB", "kept/object, bytes", "allocations/event",
	}
	for _, c := range contenders {
		if !f.has(c.name) {
			continue
		}
		s.table.add(c.name, f.syncedIn(c.name).show("%.2f"), f.ackedIn(c.name).show("%.2f"), f.ackedIn(c.name).per(f.ackedIn(theFloor)).show("%.2f"),
			f.cpu(c.name).show("%.0f"), f.cpu(c.name).per(f.cpu(theFloor)).show("%.2f"), f.cpu(plainInformer).per(f.cpu(c.name)).show("%.2f"),
			f.peak(c.name).show("%.0f"), f.kept(c.name).show("%.0f"), f.allocations(c.name).show("%.1f"))
	}
	s.notes = append(s.notes, f.missing...)
	for _, c := range contenders {
		if f.has(c.name) {
			e := f.runs[c.name].empty
			s.notes = append(s.notes, fmt.Sprintf("%s with nothing to watch: ready after %.2f s, CPU %.2f s, peak %.0f MB, live %.1f MB.",
				c.name, e.synced.Seconds(), e.cpu.Seconds(), megabytes(e.peak), megabytes(int64(e.Live))))
		}
	}
	r.add(s)
	if f.has(toNATS) {
		r.addAgain(f)
		r.addShaped(f)
	}
	r.promiseSync(f)
	r.addFormula(f)
}

// addShaped adds what a projection and a filter cost beyond the same without: objects are
// decoded then.
func (r *report) addShaped(f synced) {
	s := section{title: fmt.Sprintf("What it costs to choose what is sent, %d pods", f.pods)}
	s.table.head = []string{"", "CPU/object more than → NATS, µs", "× that", "kept/object more, bytes", "allocations/event more"}
	for _, name := range []string{projected, filtered} {
		if f.has(name) {
			s.table.add(name, f.cpu(name).less(f.cpu(toNATS)).show("%.0f"), f.cpu(name).per(f.cpu(toNATS)).show("%.2f"),
				f.kept(name).less(f.kept(toNATS)).show("%.0f"), f.allocations(name).less(f.allocations(toNATS)).show("%.1f"))
		}
	}
	if len(s.table.rows) > 0 {
		r.add(s)
	}
}

// addAgain adds what a start takes with nothing changed.
func (r *report) addAgain(f synced) {
	again := section{title: fmt.Sprintf("Start with nothing changed, %d pods", f.pods)}
	again.table.head = []string{"", "ready, s", "× floor", "events published", "CPU/object, µs"}
	again.table.add(toNATS, f.readyAgainIn().show("%.2f"), f.readyAgainIn().per(f.ackedIn(theFloor)).show("%.2f"), f.eventsAgain().show("%.0f"),
		f.of(toNATS, func(m sample) float64 { return float64(m.again.cpu.Microseconds()) / float64(f.pods) }).show("%.0f"))
	r.add(again)
	of := fmt.Sprintf("%d pods: nothing changed after a restart: ", f.pods)
	r.atMost(of+"0 events", f.eventsAgain(), 0, "%.0f")
	r.atMost(of+"ready within 2 × the floor", f.readyAgainIn().per(f.ackedIn(theFloor)), 2, "%.2f")
}

// addFormula compares what docs/sizing.md predicts. A formula that says too little has a pod
// killed, and one that says far too much is of no use.
func (r *report) addFormula(f synced) {
	c := sizing.Measured()
	s := section{title: fmt.Sprintf("The formula of docs/sizing.md, %d pods", f.pods)}
	s.table.head = []string{"", "peak predicted, MB", "measured, MB", "kept/object predicted, bytes", "measured, bytes", "CPU/object predicted, µs", "measured, µs"}
	for _, sink := range f.sinks() {
		peak := c.Peak(int64(f.pods), f.wireBytes)
		if sink == toKafka {
			peak += c.Kafka
		}
		predicted := megabytes(peak)
		s.table.add(sink, fmt.Sprintf("%.0f", predicted), f.peak(sink).show("%.0f"), fmt.Sprint(c.Kept(f.wireBytes)), f.kept(sink).show("%.0f"),
			fmt.Sprint(c.PerObject.Microseconds()), f.cpu(sink).show("%.0f"))
		share := f.peak(sink).per(constant(predicted, len(f.peak(sink))))
		r.between(fmt.Sprintf("%d pods: %s: peak is 2/3 to 1 of what docs/sizing.md predicts", f.pods, sink), share, 0.67, 1, "%.2f")
	}
	r.add(s)
}

func constant(v float64, n int) series { return slices.Repeat(series{v}, n) }

// peaks are the promised bounds of memory, in MB, by the number of pods.
var peaks = map[int]float64{20_000: 110, 100_000: 400}

func (r *report) promiseSync(f synced) {
	of := fmt.Sprintf("%d pods: ", f.pods)
	if f.has(toNATS) {
		r.atMost(of+"CPU per object to NATS ≤ 2.5 × the floor", f.cpu(toNATS).per(f.cpu(theFloor)), 2.5, "%.2f")
	}
	if f.has(toNATS) && f.has(plainInformer) {
		r.atLeast(of+"CPU per object to NATS ≤ 1/5 of the plain informer's, which is at least 5 × it", f.cpu(plainInformer).per(f.cpu(toNATS)), 5, "%.2f")
	}
	for _, sink := range f.sinks() {
		if bound, ok := peaks[f.pods]; ok {
			r.atMost(fmt.Sprintf("%s%s: peak memory ≤ %.0f MB", of, sink, bound), f.peak(sink), bound, "%.0f")
		}
		r.atMost(of+sink+": kept per object ≤ 2.5 KB", f.kept(sink), 2500, "%.0f")
		r.atMost(of+sink+": time to all acknowledged ≤ 1.5 × the floor's", f.ackedIn(sink).per(f.ackedIn(theFloor)), 1.5, "%.2f")
	}
}
