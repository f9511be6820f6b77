package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The first sync: from exec to the last acknowledgement.

// sample is one run of a contender.
type sample struct {
	synced, acked time.Duration // since exec
	usage                       // when all was acknowledged
	memory                      // live after that, allocated until then

	again restart // of the forwarder on NATS only
}

// restart is a start on a bus that is up to date.
type restart struct {
	ready  time.Duration // since exec
	events uint64        // that it has published
	cpu    time.Duration // until it was idle
}

// contender runs once on a cluster of n pods, or beside an empty namespace for n of 0:
// what it takes then is its own and not the pods'.
type contender struct {
	key, name string // for CONTENDERS and for people
	run       func(s *stage, ctx context.Context, n int) (sample, error)
}

// The names of the contenders.
const (
	theFloor      = "floor"
	plainInformer = "plain informer"
	toNATS        = "forwarder → NATS"
	toKafka       = "forwarder → Kafka"
	toStdout      = "forwarder → stdout"
	projected     = "→ NATS, a field dropped"
	filtered      = "→ NATS, filtered"
)

var contenders = []contender{
	{"floor", theFloor, (*stage).sampleFloor},
	{"informer", plainInformer, (*stage).sampleInformer},
	{"nats", toNATS, (*stage).sampleNATS},
	{"kafka", toKafka, (*stage).sampleKafka},
	{"stdout", toStdout, (*stage).sampleStdout},
	{"projection", projected, (*stage).sampleProjected},
	{"filter", filtered, (*stage).sampleFiltered},
}

// runs are the samples of a contender.
type runs struct {
	empty   sample
	samples []sample
}

// synced is all that part sync has found on a cluster.
type synced struct {
	pods      int
	wireBytes int64            // of a pod
	runs      map[string]*runs // by name; of those that ran
	missing   []string         // which could not, and why
}

func (s *stage) benchSync(ctx context.Context, n int) error {
	r := synced{pods: n, runs: map[string]*runs{}}
	read, err := s.warmUp(ctx)
	if err != nil {
		return err
	}
	r.wireBytes = read / int64(n)
	s.say("a pod has %d bytes in the watch", r.wireBytes)
	var present []contender
	for _, c := range contenders {
		if !s.has(c.key) {
			continue
		}
		if why := tooLarge(c.name, n); why != "" {
			r.missing = append(r.missing, c.name+" could not run: "+why+".")
			continue
		}
		empty, err := c.run(s, ctx, 0)
		if err != nil {
			return fmt.Errorf("%s with nothing to watch: %w", c.name, err)
		}
		present, r.runs[c.name] = append(present, c), &runs{empty: empty}
	}
	for round := range s.roundsOf(n) {
		for _, c := range present {
			sample, err := c.run(s, ctx, n)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			s.say("round %d: %-18s synced %6.2f s, acknowledged %6.2f s, CPU %6.2f s, peak %4.0f MB, live %4.0f MB", round+1, c.name,
				sample.synced.Seconds(), sample.acked.Seconds(), sample.cpu.Seconds(), megabytes(sample.peak), megabytes(int64(sample.Live)))
			r.runs[c.name].samples = append(r.runs[c.name].samples, sample)
		}
	}
	s.report.addSync(r)
	return nil
}

// warmUp lets the API server answer once, unmeasured, and returns how many bytes it sends.
func (s *stage) warmUp(ctx context.Context) (int64, error) {
	if _, err := s.sampleFloor(ctx, 0); err != nil {
		return 0, err
	}
	p, err := s.play(ctx, "floor", s.cluster.Kubeconfig(), "")
	if err != nil {
		return 0, err
	}
	m, err := p.await("acked")
	return m.Bytes, errors.Join(err, p.stop())
}

// tooLarge says why a contender cannot run on this machine. The plain informer takes
// up to 170 KB for a pod of 14.
func tooLarge(name string, n int) string {
	if name != plainInformer {
		return ""
	}
	need := int64(n) * 170_000
	available, err := memAvailable()
	switch {
	case err != nil:
		return err.Error()
	case available < need:
		return fmt.Sprintf("it needs %.0f MB and %.0f are free", megabytes(need), megabytes(available))
	default:
		return ""
	}
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

// namespaceOf is what a contender is to watch.
func namespaceOf(n int) string {
	if n == 0 {
		return emptyNamespace
	}
	return ""
}

func (s *stage) sampleFloor(ctx context.Context, n int) (sample, error) {
	p, err := s.play(ctx, "floor", s.cluster.Kubeconfig(), namespaceOf(n))
	if err != nil {
		return sample{}, err
	}
	m, err := measure(p)
	m.synced = m.acked
	return m, errors.Join(err, p.stop())
}

func (s *stage) sampleInformer(ctx context.Context, n int) (sample, error) {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return sample{}, err
	}
	p, err := s.play(ctx, "informer", s.cluster.Kubeconfig(), namespaceOf(n), bus.url)
	if err != nil {
		return sample{}, errors.Join(err, bus.close())
	}
	synced, err := p.await("synced")
	if err != nil {
		return sample{}, errors.Join(err, bus.close())
	}
	m, err := measure(p)
	m.synced = synced.At.Sub(p.started)
	return m, errors.Join(err, p.stop(), bus.close())
}

// measure looks at a role of ours when it has everything acknowledged.
func measure(p *played) (m sample, err error) {
	acked, err := p.await("acked")
	if err != nil {
		return m, err
	}
	m.acked = acked.At.Sub(p.started)
	if m.usage, err = p.usage(); err != nil {
		return m, err
	}
	m.memory, err = p.memory()
	m.Mallocs = acked.Mallocs
	return m, err
}

// sampleForwarder runs the forwarder until the bus has n pods.
func (s *stage) sampleForwarder(ctx context.Context, n int, stored func(context.Context) (int, error), settings ...string) (m sample, err error) {
	f, err := s.startForwarder(ctx, append(settings, "KUBERELAY_NAMESPACES="+namespaceOf(n))...)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	synced, err := f.awaitReady(ctx)
	if err != nil {
		return m, err
	}
	m.synced = synced.Sub(f.started)
	acked, found, err := f.awaitPublished(ctx, n, stored)
	if err != nil {
		return m, err
	}
	m.acked = acked.Sub(f.started)
	if m.usage, err = f.usage(); err != nil {
		return m, err
	}
	m.memory, err = f.memory(ctx)
	m.Mallocs = found.memory().Mallocs
	return m, err
}

func (s *stage) sampleNATS(ctx context.Context, n int) (m sample, err error) {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, bus.close()) }()
	m, err = s.sampleForwarder(ctx, n, bus.stored, "KUBERELAY_NATS_URL="+bus.url)
	if err != nil {
		return m, err
	}
	m.again, err = s.sampleRestart(ctx, bus, n)
	return m, err
}

// sampleShaped is that of a forwarder that has to decode every pod. All of them are sent.
func (s *stage) sampleShaped(ctx context.Context, n int, setting string) (m sample, err error) {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, bus.close()) }()
	return s.sampleForwarder(ctx, n, bus.stored, "KUBERELAY_NATS_URL="+bus.url, setting)
}

func (s *stage) sampleProjected(ctx context.Context, n int) (sample, error) {
	return s.sampleShaped(ctx, n, "KUBERELAY_DROP_FIELDS=pods.core:.status.conditions[*].lastProbeTime")
}

func (s *stage) sampleFiltered(ctx context.Context, n int) (sample, error) {
	return s.sampleShaped(ctx, n, `KUBERELAY_FILTER=resource.kind == "Pod" ? object.status.phase != "Unknown" : true`)
}

// stored is how many messages the stream has.
func (b *natsBus) stored(ctx context.Context) (int, error) {
	state, err := b.state(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil // not yet
	}
	return int(state.Msgs), err
}

// quiet is for how long nothing must be published until nothing will be.
const quiet = 2 * time.Second

func beQuiet(ctx context.Context) error {
	select {
	case <-time.After(quiet):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sampleRestart starts a forwarder on a bus that has all pods as they are.
func (s *stage) sampleRestart(ctx context.Context, bus *natsBus, n int) (r restart, err error) {
	before, err := bus.state(ctx)
	if err != nil {
		return r, err
	}
	f, err := s.startForwarder(ctx, "KUBERELAY_NATS_URL="+bus.url, "KUBERELAY_NAMESPACES="+namespaceOf(n))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	ready, err := f.awaitReady(ctx)
	if err != nil {
		return r, err
	}
	r.ready = ready.Sub(f.started)
	// Every pod has then to be looked at, and found to be on the bus already.
	if err := f.until(ctx, func() (bool, error) {
		m, err := f.metrics(ctx)
		return err == nil && m.sum("workqueue_depth", "") == 0, err
	}); err != nil {
		return r, err
	}
	if err := beQuiet(ctx); err != nil {
		return r, err
	}
	u, err := f.usage()
	if err != nil {
		return r, err
	}
	r.cpu = u.cpu
	r.events, err = bus.podEventsAfter(ctx, before.LastSeq)
	return r, err
}

// podEventsAfter is how many events of pods the stream got after a position.
func (b *natsBus) podEventsAfter(ctx context.Context, position uint64) (uint64, error) {
	c, err := b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: "kuberelay.bench.core.pods.>", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
	})
	if err != nil {
		return 0, err
	}
	pending := c.CachedInfo().NumPending
	return pending, b.js.DeleteConsumer(ctx, stream, c.CachedInfo().Name)
}

// sampleStdout: each event is acknowledged when it is written, and /dev/null takes it at once.
func (s *stage) sampleStdout(ctx context.Context, n int) (sample, error) {
	written := func(context.Context) (int, error) { return n, nil } // there is no bus to ask
	return s.sampleForwarder(ctx, n, written, "KUBERELAY_SINK=stdout")
}

// memAvailable is what the machine has left for a process.
func memAvailable() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return parseKiB(text, "MemAvailable:")
}
