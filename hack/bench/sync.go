package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/sizing"
)

// sample is the result of one run of a contender: a first sync from exec to the last acknowledgement.
type sample struct {
	synced, acked time.Duration // since exec
	usage                       // after the last acknowledgement
	again         restart       // only for the forwarder on NATS
}

// restart is the result of a start on a bus that is already up to date.
type restart struct {
	ready, cpu time.Duration // time from exec until ready; CPU time until idle
	events     uint64        // number of published events
}

// contender is a program to compare. run runs it once on a cluster of n pods. With n = 0, it watches an
// empty namespace, which measures the process itself.
type contender struct {
	key, name string // key is the value in CONTENDERS, name the text in the report
	run       func(s *stage, ctx context.Context, n int) (sample, error)
}

var contenders = []contender{
	{"floor", "floor", (*stage).sampleFloor},
	{"informer", "plain informer", (*stage).sampleInformer},
	{"nats", "forwarder → NATS", (*stage).sampleNATS},
	{"kafka", "forwarder → Kafka", (*stage).sampleKafka},
	{"stdout", "forwarder → stdout", (*stage).sampleStdout},
	{"projection", "→ NATS, a field dropped", shaped("KUBERELAY_DROP_FIELDS=pods.core:.status.conditions[*].lastProbeTime")},
	{"filter", "→ NATS, filtered", shaped(`KUBERELAY_FILTER=resource.kind == "Pod" ? object.status.phase != "Unknown" : true`)},
}

// synced has the results of benchmark sync on one cluster.
type synced struct {
	pods      int
	wireBytes int64               // size of a pod in a watch
	empty     map[string]sample   // samples with nothing to watch, by contender key
	samples   map[string][]sample // samples of the contenders that ran, by key
	missing   []string            // reasons why other contenders did not run
}

func (s *stage) benchSync(ctx context.Context, n int) error {
	r := synced{pods: n, empty: map[string]sample{}, samples: map[string][]sample{}}
	_, m, err := s.sampleRole(ctx, n, "floor") // warms up the API server; this run isn't measured
	if err != nil {
		return err
	}
	r.wireBytes = m.Bytes / int64(n)
	s.say("a pod has %d bytes in the watch", r.wireBytes)
	rounds := s.rounds
	if rounds == 0 && n < 50_000 {
		rounds = 3
	}
	for round := range max(rounds, 1) {
		for _, c := range contenders {
			if c.key != "floor" && !slices.Contains(s.contenders, c.key) { // the floor always runs, because the report compares with it
				continue
			}
			if round == 0 {
				if free, err := readKiB("/proc/meminfo", "MemAvailable"); err != nil || c.key == "informer" && free < int64(n)*170_000 {
					r.missing = append(r.missing, fmt.Sprintf("The %s did not run: it needs %.0f MB, and %.0f are free.", c.name, float64(n)*0.17, megabytes(free)))
					continue
				}
				if r.empty[c.key], err = c.run(s, ctx, 0); err != nil {
					return fmt.Errorf("%s with nothing to watch: %w", c.name, err)
				}
			}
			if _, ok := r.empty[c.key]; !ok {
				continue
			}
			m, err := c.run(s, ctx, n)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			s.say("round %d: %-23s synced %6.2f s, acknowledged %6.2f s, CPU %6.2f s, peak %4.0f MB, live %4.0f MB", round+1, c.name,
				m.synced.Seconds(), m.acked.Seconds(), m.cpu.Seconds(), megabytes(m.peak), m.live/1e6)
			r.samples[c.key] = append(r.samples[c.key], m)
		}
	}
	s.report.addSync(&r)
	return nil
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

// namespaceOf returns the namespace that a contender watches. "" means all namespaces.
func namespaceOf(n int) string {
	if n == 0 {
		return emptyNamespace
	}
	return ""
}

// sampleRole runs a contender that is a role of this program.
func (s *stage) sampleRole(ctx context.Context, n int, role string, args ...string) (m sample, reached milestones, err error) {
	p, err := s.start(role, nil, append([]string{s.self, role, s.cluster.Kubeconfig(), namespaceOf(n)}, args...)...)
	if err != nil {
		return m, reached, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	body, _, err := p.ready(ctx)
	if err == nil {
		err = json.Unmarshal(body, &reached)
	}
	if err != nil {
		return m, reached, err
	}
	m.synced, m.acked = reached.Synced.Sub(p.started), reached.Acked.Sub(p.started)
	m.usage, err = p.usage(ctx)
	return m, reached, err
}

func (s *stage) sampleFloor(ctx context.Context, n int) (sample, error) {
	m, _, err := s.sampleRole(ctx, n, "floor")
	return m, err
}

func (s *stage) sampleInformer(ctx context.Context, n int) (m sample, err error) {
	err = s.onNATS(ctx, func(bus *natsBus) error {
		m, _, err = s.sampleRole(ctx, n, "informer", bus.url)
		return err
	})
	return m, err
}

func (s *stage) onNATS(ctx context.Context, do func(*natsBus) error) error {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(bus), bus.close())
}

// sampleForwarder runs a forwarder until the bus has acknowledged n events of pods.
func (s *stage) sampleForwarder(ctx context.Context, n int, env ...string) (m sample, err error) {
	f, err := s.startForwarder(append(env, "KUBERELAY_NAMESPACES="+namespaceOf(n))...)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	_, synced, err := f.ready(ctx)
	if err != nil {
		return m, err
	}
	m.synced = synced.Sub(f.started)
	if err := f.until(ctx, func() (bool, error) {
		m.acked = time.Since(f.started)
		found, err := f.metrics(ctx)
		return found.sum("kuberelay_events_published_total", "pods") >= float64(n), err
	}); err != nil {
		return m, err
	}
	m.usage, err = f.usage(ctx)
	return m, err
}

func (s *stage) sampleNATS(ctx context.Context, n int) (m sample, err error) {
	err = s.onNATS(ctx, func(bus *natsBus) error {
		if m, err = s.sampleForwarder(ctx, n, bus.env()...); err == nil {
			m.again, err = s.sampleRestart(ctx, n, bus)
		}
		return err
	})
	return m, err
}

// shaped returns the run function of a contender. The contender is a forwarder on NATS with a setting that
// makes it decode every pod but leaves out no object.
func shaped(setting string) func(*stage, context.Context, int) (sample, error) {
	return func(s *stage, ctx context.Context, n int) (m sample, err error) {
		err = s.onNATS(ctx, func(bus *natsBus) error {
			m, err = s.sampleForwarder(ctx, n, append(bus.env(), setting)...)
			return err
		})
		return m, err
	}
}

// sampleKafka uses the same broker for all samples. So after the first sample, Java has compiled the
// broker's code.
func (s *stage) sampleKafka(ctx context.Context, n int) (sample, error) {
	if s.broker == nil {
		var err error
		if s.broker, err = s.startKafka(ctx, 1); err != nil {
			return sample{}, err
		}
	}
	s.topics++
	topic := &kafkaTopic{s.broker, fmt.Sprintf("bench-%d", s.topics)}
	return s.sampleForwarder(ctx, n, topic.env()...)
}

// sampleStdout runs a forwarder that writes to /dev/null. An event counts as acknowledged when it is
// written.
func (s *stage) sampleStdout(ctx context.Context, n int) (sample, error) {
	return s.sampleForwarder(ctx, n, "KUBERELAY_SINK=stdout")
}

// sampleRestart starts a forwarder on a bus that has the current state of all pods.
func (s *stage) sampleRestart(ctx context.Context, n int, bus *natsBus) (r restart, err error) {
	before, err := bus.js.Stream(ctx, stream)
	if err != nil {
		return r, err
	}
	f, err := s.startForwarder(append(bus.env(), "KUBERELAY_NAMESPACES="+namespaceOf(n))...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	_, ready, err := f.ready(ctx)
	if err == nil {
		err = f.idle(ctx) // by then, the forwarder has compared every pod with the bus
	}
	if err != nil {
		return r, err
	}
	m, err := f.metrics(ctx)
	if err != nil {
		return r, err
	}
	r.ready, r.cpu = ready.Sub(f.started), time.Duration(m.sum("process_cpu_seconds_total", "")*float64(time.Second))
	r.events, err = bus.podEventsAfter(ctx, before.CachedInfo().State.LastSeq)
	return r, err
}

// of returns one value from every run of a contender.
func (r *synced) of(key string, value func(sample) float64) (s series) {
	for _, m := range r.samples[key] {
		s = append(s, value(m))
	}
	return s
}

func (r *synced) acked(key string) series {
	return r.of(key, func(m sample) float64 { return m.acked.Seconds() })
}

// cpu returns the CPU time per object in microseconds, including the start of the process.
func (r *synced) cpu(key string) series {
	return r.of(key, func(m sample) float64 { return float64(m.cpu.Microseconds()) / float64(r.pods) })
}

func (r *synced) peak(key string) series {
	return r.of(key, func(m sample) float64 { return megabytes(m.peak) })
}

// kept returns the live heap per object in bytes. It excludes the heap of a process that watches nothing.
func (r *synced) kept(key string) series {
	return r.of(key, func(m sample) float64 { return (m.live - r.empty[key].live) / float64(r.pods) })
}

// addSync adds the tables and promises for one cluster.
func (r *report) addSync(f *synced) {
	of := fmt.Sprintf("%d pods: ", f.pods)
	s := r.add(fmt.Sprintf("First sync of %d pods of %d bytes", f.pods, f.wireBytes), "", "synced, s", "acknowledged, s", "× floor", "CPU/object, µs", "× floor",
		"÷ plain informer", "peak, MB", "peak, nothing watched", "kept/object, bytes", "allocations/event")
	s.notes = f.missing
	for _, c := range contenders {
		if f.samples[c.key] == nil {
			continue
		}
		synced := f.of(c.key, func(m sample) float64 { return m.synced.Seconds() })
		allocations := f.of(c.key, func(m sample) float64 { return (m.mallocs - f.empty[c.key].mallocs) / float64(f.pods) })
		s.add(c.name, synced.show("%.2f"), f.acked(c.key).show("%.2f"), f.acked(c.key).per(f.acked("floor")).show("%.2f"),
			f.cpu(c.key).show("%.0f"), f.cpu(c.key).per(f.cpu("floor")).show("%.2f"), f.cpu("informer").per(f.cpu(c.key)).show("%.2f"),
			f.peak(c.key).show("%.0f"), fmt.Sprintf("%.0f", megabytes(f.empty[c.key].peak)), f.kept(c.key).show("%.0f"), allocations.show("%.1f"))
	}
	if f.samples["nats"] != nil {
		r.atMost(of+"CPU per object to NATS ≤ 2.5 × the floor", f.cpu("nats").per(f.cpu("floor")), 2.5, "%.2f")
		r.addAgain(f)
	}
	if f.samples["nats"] != nil && f.samples["informer"] != nil {
		r.atMost(of+"CPU per object to NATS ≤ 1/5 of the plain informer's", f.cpu("nats").per(f.cpu("informer")), 0.2, "%.3f")
	}
	r.addFormula(f)
}

// addAgain adds the cost of a restart when nothing has changed.
func (r *report) addAgain(f *synced) {
	ready := f.of("nats", func(m sample) float64 { return m.again.ready.Seconds() })
	events := f.of("nats", func(m sample) float64 { return float64(m.again.events) })
	cpu := f.of("nats", func(m sample) float64 { return float64(m.again.cpu.Microseconds()) / float64(f.pods) })
	r.add(fmt.Sprintf("Start with nothing changed, %d pods", f.pods), "ready, s", "× floor", "events published", "CPU/object, µs").
		add(ready.show("%.2f"), ready.per(f.acked("floor")).show("%.2f"), events.show("%.0f"), cpu.show("%.0f"))
	r.atMost(fmt.Sprintf("%d pods: a restart with nothing changed publishes 0 events", f.pods), events, 0, "%.0f")
	r.atMost(fmt.Sprintf("%d pods: a restart with nothing changed is ready within 2 × the floor", f.pods), ready.per(f.acked("floor")), 2, "%.2f")
}

// peaks are the promised memory limits in MB, by number of pods.
var peaks = map[int]float64{20_000: 110, 100_000: 400}

// addFormula compares the measurements with the predictions of docs/sizing.md, and adds promises for each
// sink. If the formula predicts too little memory, the kernel kills a pod with that limit. If it predicts
// far too much, it is useless.
func (r *report) addFormula(f *synced) {
	c := sizing.Measured()
	s := r.add(fmt.Sprintf("The formula of docs/sizing.md, %d pods", f.pods), "", "peak predicted, MB", "measured, MB", "kept/object predicted, bytes", "measured, bytes",
		"CPU/object predicted, µs", "measured, µs")
	for _, sink := range contenders[2:5] {
		if f.samples[sink.key] == nil {
			continue
		}
		peak := c.Peak(int64(f.pods), 0, f.wireBytes)
		if sink.key == "kafka" {
			peak += c.Kafka
		}
		s.add(sink.name, fmt.Sprintf("%.0f", megabytes(peak)), f.peak(sink.key).show("%.0f"), fmt.Sprint(c.Kept(f.wireBytes)), f.kept(sink.key).show("%.0f"),
			fmt.Sprint(c.PerObject.Microseconds()), f.cpu(sink.key).show("%.0f"))
		of := fmt.Sprintf("%d pods: %s: ", f.pods, sink.name)
		if bound, ok := peaks[f.pods]; ok {
			r.atMost(fmt.Sprintf("%speak memory ≤ %.0f MB", of, bound), f.peak(sink.key), bound, "%.0f")
		}
		r.atMost(of+"kept per object ≤ 2.5 KB", f.kept(sink.key), 2500, "%.0f")
		r.atMost(of+"time to all acknowledged ≤ 1.5 × the floor's", f.acked(sink.key).per(f.acked("floor")), 1.5, "%.2f")
		share := f.of(sink.key, func(m sample) float64 { return float64(m.peak) / float64(peak) })
		r.promise(of+"peak is 2/3 to 1 of what docs/sizing.md predicts", share, 0.67, 1, "%.2f")
	}
}
