package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Latency and rate: a steady stream of changes while the forwarder publishes to NATS,
// seen by a subscriber and by a bare watch.

const (
	unloaded     = 20.0 // changes a second
	unloadedTime = time.Minute

	firstRate = 50.0 // and then half as many again, and again
	stepTime  = 8 * time.Second
	// A rate is held if that part of it is reached, the forwarder adds no more than that
	// to the watch's latency, and what is left at the end is on the bus soon.
	reached    = 0.95
	maxBeyond  = 250 * time.Millisecond
	maxLeft    = time.Second
	manyChange = 5_000 // pods that are changed in turn, so that no two changes of one meet
)

// scene is a forwarder that has synced, and those who look on.
type scene struct {
	bus        *natsBus
	forwarder  *forwarder
	changer    *changer
	watch      *bareWatch
	subscriber *subscriber
	pods       []object
}

// calm is a stream of changes without load.
type calm struct {
	latencies
	alone series        // of the bus, see publishBeside
	cost  time.Duration // the forwarder's CPU time for each change
}

func (s *stage) benchLatency(ctx context.Context, n int) error {
	return s.onScene(ctx, n, func(sc *scene) error {
		untouched := sc.pods[len(sc.pods)/2:]
		sc.pods = sc.pods[:len(sc.pods)/2]
		var c calm
		if err := both(func() (err error) {
			c.latencies, c.cost, _, err = sc.changeSteadily(ctx, unloaded, unloadedTime)
			return err
		}, func() (err error) {
			c.alone, err = sc.publishBeside(ctx, untouched, unloaded, unloadedTime)
			return err
		}); err != nil {
			return err
		}
		s.report.addLatency(n, c, sc.watch.note())
		return nil
	})
}

func (s *stage) benchRate(ctx context.Context, n int) error {
	return s.onScene(ctx, n, func(sc *scene) error {
		var steps []step
		for rate := firstRate; ; rate *= 1.5 {
			st, err := sc.tryRate(ctx, rate)
			if err != nil {
				return err
			}
			s.say("%4.0f changes a second: %s", rate, st.verdict())
			steps = append(steps, st)
			if st.limit != "" {
				s.report.addRate(n, steps, sc.watch.note())
				return nil
			}
		}
	})
}

// onScene lets the forwarder sync and be quiet, and then does something with it.
func (s *stage) onScene(ctx context.Context, n int, do func(*scene) error) (err error) {
	sc := &scene{}
	if sc.bus, err = s.startNATS(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sc.bus.close()) }()
	if sc.forwarder, err = s.startForwarder(ctx, "KUBERELAY_NATS_URL="+sc.bus.url); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sc.forwarder.stop()) }()
	for i := range min(n, manyChange) {
		p := pod(i)
		sc.pods = append(sc.pods, object{"pods", p.Namespace, p.Name})
	}
	lasts := map[object]kept{}
	for _, o := range sc.pods[len(sc.pods)/2:] {
		lasts[o] = kept{}
	}
	if sc.subscriber, err = sc.bus.subscribe(ctx, sc.forwarder, lasts, "kuberelay.bench.core.pods.>"); err != nil {
		return err
	}
	defer sc.subscriber.consuming.Stop()
	if _, _, err := sc.forwarder.awaitPublished(ctx, n, sc.bus.stored); err != nil {
		return err
	}
	if sc.changer, err = newChanger(s.cluster.Config()); err != nil {
		return err
	}
	if sc.watch, err = watchBare(ctx, s.cluster.Config(), "pods", ""); err != nil {
		return err
	}
	defer sc.watch.close()
	if err := beQuiet(ctx); err != nil {
		return err
	}
	return do(sc)
}

// changeSteadily makes changes of one pod after the other and waits until all are seen. Cost
// is the forwarder's CPU time for each.
func (sc *scene) changeSteadily(ctx context.Context, perSecond float64, length time.Duration) (l latencies, cost time.Duration, made made, err error) {
	before, err := sc.forwarder.usage()
	if err != nil {
		return l, 0, made, err
	}
	known := len(sc.changer.done())
	made.rate, err = pace(ctx, perSecond, length, func(i int) error {
		return sc.changer.patch(ctx, sc.pods[(known+i)%len(sc.pods)])
	})
	if err != nil {
		return l, 0, made, err
	}
	end, changes := time.Now(), sc.changer.done()[known:]
	if err := awaitAll(ctx, changes, sc.watch, sc.subscriber); err != nil {
		return l, 0, made, errors.Join(err, sc.forwarder.alive())
	}
	made.left = time.Since(end)
	after, err := sc.forwarder.usage()
	return compare(changes, &sc.watch.sightings, &sc.subscriber.sightings), (after.cpu - before.cpu) / time.Duration(len(changes)), made, err
}

// made is how a stream of changes was made.
type made struct {
	rate float64       // that the API server took
	left time.Duration // from the last answer until the subscriber had seen all
}

// step is one rate that was tried.
type step struct {
	asked float64
	made
	latencies
	cost  time.Duration
	limit string // what was not able to do more; "" if the rate was held
}

func (sc *scene) tryRate(ctx context.Context, rate float64) (st step, err error) {
	st.asked = rate
	st.latencies, st.cost, st.made, err = sc.changeSteadily(ctx, rate, stepTime)
	switch {
	case err != nil:
		return st, err
	case st.rate < reached*rate:
		st.limit = "the API server, which took no more"
	case st.watch.percentile(99) > milliseconds(maxLeft):
		st.limit = "the API server, whose own watch was late"
	case st.beyond.percentile(99) > milliseconds(maxBeyond) || st.left > maxLeft:
		st.limit = "the forwarder"
	}
	return st, nil
}

func (st step) verdict() string {
	text := fmt.Sprintf("made %.0f, PATCH p99 %.0f ms, subscriber p99 %.0f ms, of which the watch %.0f, last seen after %s", st.rate,
		st.request.percentile(99), st.subscriber.percentile(99), st.watch.percentile(99), st.left.Round(time.Millisecond))
	if st.limit == "" {
		return text + ": held"
	}
	return text + ": the limit is " + st.limit
}

// addLatency adds the latencies of a stream of changes without load.
func (r *report) addLatency(n int, c calm, notes []string) {
	s := section{title: fmt.Sprintf("Latency of %.0f changes a second, %d pods", unloaded, n), notes: notes}
	s.table.head = []string{"from the API server's answer", "changes", "p50, ms", "p99, ms", "largest, ms"}
	c.rows(&s.table, "")
	s.table.addSeries("the bus alone, from the publish", c.alone)
	s.notes = append(s.notes, "The bus alone is as many events that a bare nats.go publishes at the same time to the same stream, with the same compare-and-set.",
		fmt.Sprintf("The forwarder's CPU for each change: %d µs.", c.cost.Microseconds()))
	r.add(s)
	r.atMost(fmt.Sprintf("%d pods: unloaded latency p99 ≤ 10 ms beyond the API server's own watch", n), c.beyond.p99(), 10, "%.1f ms")
}

// rows adds what they are to a table.
func (l latencies) rows(t *table, of string) {
	for _, row := range []struct {
		name string
		s    series
	}{{"bare watch", l.watch}, {"subscriber", l.subscriber}, {"subscriber after bare watch", l.beyond}} {
		t.addSeries(of+row.name, row.s)
	}
}

// addSeries adds a row of latencies in milliseconds.
func (t *table) addSeries(name string, s series) {
	t.add(name, fmt.Sprint(len(s)), fmt.Sprintf("%.1f", s.percentile(50)), fmt.Sprintf("%.1f", s.percentile(99)), fmt.Sprintf("%.1f", s.max()))
}

func (r *report) addRate(n int, steps []step, notes []string) {
	s := section{title: fmt.Sprintf("Largest rate of changes, %d pods", n), notes: notes}
	s.table.head = []string{"asked, 1/s", "made, 1/s", "PATCH p99, ms", "bare watch p99, ms", "subscriber p50, ms", "p99, ms", "after bare watch p99, ms", "last seen after, ms", "CPU/change, µs", ""}
	held := 0.0
	for _, st := range steps {
		verdict := "held"
		if st.limit == "" {
			held = st.rate
		} else {
			verdict = "limit: " + st.limit
		}
		s.table.add(fmt.Sprintf("%.0f", st.asked), fmt.Sprintf("%.0f", st.rate), fmt.Sprintf("%.0f", st.request.percentile(99)),
			fmt.Sprintf("%.0f", st.watch.percentile(99)),
			fmt.Sprintf("%.1f", st.subscriber.percentile(50)), fmt.Sprintf("%.0f", st.subscriber.percentile(99)),
			fmt.Sprintf("%.0f", st.beyond.percentile(99)), fmt.Sprintf("%.0f", milliseconds(st.left)), fmt.Sprint(st.cost.Microseconds()), verdict)
	}
	s.notes = append(s.notes, fmt.Sprintf("Held: %.0f changes a second.", held))
	r.add(s)
}
