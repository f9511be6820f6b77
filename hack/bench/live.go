package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

const (
	latencyRate = 20.0 // changes of pods per second
	latencyTime = time.Minute

	liveRate = 100.0 // changes per second, half of them changes of ConfigMaps
	liveTime = 20 * time.Second
	// maxSlower is the maximum ratio of the latency during a first sync or a fault to the normal
	// latency.
	maxSlower = 1.5

	// arriveLimit is how long a change may take before it counts as lost. The API server ends a watch
	// that is too slow, so the limit leaves time to list all objects a second time.
	arriveLimit = 10 * time.Minute
)

// scene is a forwarder and the observers of its changes. The observers are a bare watch for each resource
// and a subscriber on the bus.
type scene struct {
	*stage
	changer
	forwarder  *process
	watched    sightings
	subscriber *subscriber
}

// onScene starts a forwarder and the observers on a bus, calls do, and stops all of them.
func (s *stage) onScene(ctx context.Context, bus bus, do func(context.Context, *scene) error) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer func() { fail(nil); err = errors.Join(err, bus.close()) }()
	sc := &scene{stage: s}
	if sc.client, err = metadata.NewForConfig(s.cluster.Config()); err != nil {
		return err
	}
	for _, resource := range []string{"pods", "configmaps"} {
		now, err := sc.client.Resource(corev1.SchemeGroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		go func() {
			if err := watchBare(ctx, s.cluster.Config(), resource, now.ResourceVersion, &sc.watched); err != nil {
				fail(err)
			}
		}()
	}
	if sc.forwarder, err = s.startForwarder(append(bus.env(), "KUBERELAY_RESOURCES=pods,configmaps")...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sc.forwarder.stop()) }()
	if sc.subscriber, err = bus.subscribe(ctx, fail); err != nil {
		return err
	}
	return do(ctx, sc)
}

// changeFor changes objects for the given time, and waits until all changes have arrived.
func (sc *scene) changeFor(ctx context.Context, length time.Duration, rate float64, next func(i int) object) ([]change, error) {
	start := time.Now()
	stop, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	if err := pace(ctx, stop, rate, func(ctx context.Context, i int) error { return sc.change(ctx, next(i)) }); err != nil {
		return nil, err
	}
	changes := sc.of("", start, time.Now())
	return changes, errors.Join(sc.watched.await(ctx, arriveLimit, changes), sc.subscriber.await(ctx, arriveLimit, changes))
}

// livePod and liveObject return the object that the i-th change changes.
func livePod(i int) object { return object{"pods", liveNamespace, pod(i % liveObjects).Name} }

func liveObject(i int) object {
	if i%2 == 1 {
		return livePod(i / 2)
	}
	return object{"configmaps", liveNamespace, liveConfigMap(i / 2 % liveObjects)}
}

func (s *stage) benchLatency(ctx context.Context, n int) error {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return err
	}
	return s.onScene(ctx, bus, func(ctx context.Context, sc *scene) error {
		if err := sc.forwarder.idle(ctx); err != nil {
			return err
		}
		before, err := sc.forwarder.metrics(ctx)
		if err != nil {
			return err
		}
		changes, err := sc.changeFor(ctx, latencyTime, latencyRate, livePod)
		if err != nil {
			return err
		}
		after, err := sc.forwarder.metrics(ctx)
		if err != nil {
			return err
		}
		const cpu = "process_cpu_seconds_total"
		cost := (after.sum(cpu, "") - before.sum(cpu, "")) / float64(len(changes))
		s.report.addLatency(n, &sc.watched, &sc.subscriber.sightings, changes, cost)
		return nil
	})
}

func (r *report) addLatency(n int, watched, subscriber *sightings, changes []change, cost float64) {
	section := r.add(fmt.Sprintf("Latency of %.0f changes per second, %d pods", latencyRate, n), latencyHead...)
	beyond := subscriber.beyond(watched, changes)
	section.latencies("bare watch", watched.latencies(changes))
	section.latencies("subscriber", subscriber.latencies(changes))
	section.latencies("subscriber after bare watch", beyond)
	section.notes = []string{fmt.Sprintf("The forwarder's CPU time for each change: %.0f µs.", cost*1e6)}
	r.p99AtMost(fmt.Sprintf("%d pods: a change on an idle forwarder is on the bus, after the bare watch,", n), beyond, 10)
}

// phase is the time range of a part of benchmark live.
type phase struct{ from, to time.Time }

// livePhases are the phases of benchmark live. liveResources are the resources that it changes.
var livePhases, liveResources = []string{"listing", "publishing", "idle"}, []string{"configmaps", "pods"}

// live has the latencies of all rounds of benchmark live together. A single round would be too noisy: its
// 99th percentile is the fifth largest of 500 values, and differs by a factor of 2 between rounds.
type live struct {
	bare, subscriber, beyond map[string]series // by resource and phase
	floor                    map[string]series // by phase
	listing, publishing      series            // durations in seconds
}

// liveRounds is the number of rounds unless ROUNDS is set.
const liveRounds = 3

// benchLive makes changes during the first sync, and then on the idle forwarder. The few ConfigMaps have a
// separate watch, so their changes don't have to wait for the pods.
func (s *stage) benchLive(ctx context.Context, n int) error {
	l := live{map[string]series{}, map[string]series{}, map[string]series{}, map[string]series{}, nil, nil}
	rounds := s.rounds
	if rounds == 0 {
		rounds = liveRounds
	}
	for range rounds {
		if err := s.liveRound(ctx, &l); err != nil {
			return err
		}
	}
	s.report.addLive(n, &l)
	return nil
}

func (s *stage) liveRound(ctx context.Context, l *live) error {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return err
	}
	return s.onScene(ctx, bus, func(ctx context.Context, sc *scene) error {
		stop, cancel := context.WithCancel(ctx)
		defer cancel()
		probing, fail := context.WithCancelCause(ctx)
		defer fail(nil)
		floor, err := bus.startProbe(probing, fail, liveRate)
		if err != nil {
			return err
		}
		changing := make(chan error, 1)
		go func() {
			changing <- pace(ctx, stop, liveRate, func(ctx context.Context, i int) error { return sc.change(ctx, liveObject(i)) })
		}()
		_, synced, err := sc.forwarder.ready(ctx)
		var completed time.Time
		if err == nil {
			err = sc.forwarder.until(ctx, func() (bool, error) {
				select {
				case completed = <-sc.subscriber.completed:
					return true, nil
				default:
					return false, nil
				}
			})
		}
		cancel()
		if err := errors.Join(err, <-changing); err != nil {
			return err
		}
		during := sc.of("", time.Time{}, completed)
		if err := errors.Join(sc.watched.await(ctx, arriveLimit, during), sc.subscriber.await(ctx, arriveLimit, during), sc.forwarder.idle(ctx)); err != nil {
			return err
		}
		quiet := time.Now()
		if _, err := sc.changeFor(ctx, liveTime, liveRate, liveObject); err != nil {
			return err
		}
		if err := context.Cause(probing); err != nil {
			return err
		}
		l.add(sc, floor, []phase{{sc.forwarder.started, synced}, {synced, completed}, {quiet, time.Now()}})
		return nil
	})
}

// add adds the latencies of a round. phases are the time ranges of livePhases.
func (l *live) add(sc *scene, floor *probe, phases []phase) {
	for i, p := range phases {
		name := livePhases[i]
		for _, resource := range liveResources {
			row, changes := resource+", "+name, sc.of(resource, p.from, p.to)
			l.bare[row] = append(l.bare[row], sc.watched.latencies(changes)...)
			l.subscriber[row] = append(l.subscriber[row], sc.subscriber.latencies(changes)...)
			l.beyond[row] = append(l.beyond[row], sc.subscriber.beyond(&sc.watched, changes)...)
		}
		l.floor[name] = append(l.floor[name], floor.between(p.from, p.to)...)
	}
	l.listing = append(l.listing, phases[0].to.Sub(phases[0].from).Seconds())
	l.publishing = append(l.publishing, phases[1].to.Sub(phases[1].from).Seconds())
}

func (r *report) addLive(n int, l *live) {
	section := r.add(fmt.Sprintf("Changes during the first sync of %d pods, %d rounds together", n, len(l.listing)), latencyHead...)
	for _, resource := range liveResources {
		for _, name := range livePhases {
			row := resource + ", " + name
			section.latencies(row+": bare watch", l.bare[row])
			section.latencies(row+": subscriber", l.subscriber[row])
			section.latencies(row+": subscriber after bare watch", l.beyond[row])
			if row != "pods, listing" { // the API server sends changes of pods only after the list
				r.p99AtMost(fmt.Sprintf("%d pods: a change of %s while %s is on the bus, after the bare watch,", n, resource, name), l.beyond[row], 100)
			}
		}
	}
	for _, name := range livePhases {
		section.latencies("bare nats.go, "+name+": publish to subscriber", l.floor[name])
	}
	ratio := func(of map[string]series, resource string) float64 {
		return of[resource+"publishing"].percentile(99) / of[resource+"idle"].percentile(99)
	}
	r.promise(fmt.Sprintf("%d pods: a change of configmaps while the first sync is published takes at most %.1f × of one on the idle forwarder (p99)", n, maxSlower),
		series{ratio(l.subscriber, "configmaps, ")}, 0, maxSlower, "%.2f")
	section.notes = []string{
		fmt.Sprintf("Listing took %s s from exec, publishing %s s more. The bare watch has nothing to list; a forwarder gets the changes of pods after all pods.",
			l.listing.show("%.1f"), l.publishing.show("%.1f")),
		fmt.Sprintf("The ratio of the last promise for bare nats.go, which shares the CPUs and the bus with the forwarder: %.2f.", ratio(l.floor, "")),
	}
}
