package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Live: changes made while the first sync of many pods is running. Those of configmaps, of
// which there are few, need not wait for the pods; those of pods are in the same watch.

// livePace is the number of changes a second, half of them configmaps'.
const livePace = 20.0

// phases of the first sync: until every informer has synced, and until all is on the bus.
const (
	listing    = "listing"
	publishing = "publishing"
)

func (s *stage) benchLive(ctx context.Context, n int) (err error) {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.close()) }()
	c, err := newChanger(s.cluster.Config())
	if err != nil {
		return err
	}
	watches := map[string]*bareWatch{}
	defer func() {
		for _, w := range watches {
			w.close()
		}
	}()
	for _, resource := range []string{"pods", "configmaps"} {
		w, err := watchBare(ctx, s.cluster.Config(), resource, liveNamespace)
		if err != nil {
			return err
		}
		watches[resource] = w
	}
	f, err := s.startForwarder(ctx, "KUBERELAY_NATS_URL="+bus.url, "KUBERELAY_RESOURCES=pods,configmaps")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	sub, err := bus.subscribe(ctx, f, nil, "kuberelay.bench.core.*."+liveNamespace+".>", "kuberelay.bench._control.snapshot.>")
	if err != nil {
		return err
	}
	defer sub.consuming.Stop()
	synced, completed, err := changeWhileSyncing(ctx, f, c, sub)
	if err != nil {
		return err
	}
	for resource, w := range watches {
		if err := awaitAll(ctx, of(c.done(), resource, time.Time{}, completed), w, sub); err != nil {
			return err
		}
	}
	l := lived{pods: n, phases: map[string]map[string]latencies{}, lengths: map[string]time.Duration{listing: synced.Sub(f.started), publishing: completed.Sub(synced)}}
	for resource, w := range watches {
		l.phases[resource] = map[string]latencies{
			listing:    compare(of(c.done(), resource, time.Time{}, synced), &w.sightings, &sub.sightings),
			publishing: compare(of(c.done(), resource, synced, completed), &w.sightings, &sub.sightings),
		}
	}
	s.report.addLive(l)
	return nil
}

// changeWhileSyncing makes changes until the first sync of all pods is completed. It returns
// when every informer had synced, and when it was completed.
func changeWhileSyncing(ctx context.Context, f *forwarder, c *changer, sub *subscriber) (synced, completed time.Time, err error) {
	changing, stop := context.WithCancel(ctx)
	var making sync.WaitGroup
	var failed error
	making.Go(func() {
		const forEver = 24 * time.Hour
		_, failed = pace(changing, livePace, forEver, func(i int) error {
			o := object{"configmaps", liveNamespace, liveConfigMap(i / 2 % liveObjects)}
			if i%2 == 1 {
				o.resource, o.name = "pods", pod(i/2%liveObjects).Name
			}
			return c.patch(ctx, o)
		})
	})
	synced, err = f.awaitReady(ctx)
	if err == nil {
		err = f.until(ctx, func() (done bool, err error) {
			completed, done, err = sub.completedAt("pods")
			return done, err
		})
	}
	stop()
	making.Wait()
	if errors.Is(failed, context.Canceled) {
		failed = nil // it was stopped
	}
	return synced, completed, errors.Join(err, failed)
}

// of are the changes of a resource in a time.
func of(changes []change, resource string, from, to time.Time) []change {
	var some []change
	for _, c := range changes {
		if c.resource == resource && !c.at.Before(from) && c.at.Before(to) {
			some = append(some, c)
		}
	}
	return some
}

// lived is what was found on a cluster.
type lived struct {
	pods    int
	phases  map[string]map[string]latencies // by resource and phase
	lengths map[string]time.Duration
}

func (r *report) addLive(l lived) {
	s := section{title: fmt.Sprintf("Changes during the first sync of %d pods", l.pods)}
	s.table.head = []string{"from the API server's answer", "changes", "p50, ms", "p99, ms", "largest, ms"}
	for _, resource := range []string{"configmaps", "pods"} {
		for _, phase := range []string{listing, publishing} {
			found := l.phases[resource][phase]
			found.rows(&s.table, resource+", "+phase+": ")
			if resource == "pods" && phase == listing {
				continue // the API server itself sends a change of a pod after the list
			}
			r.atMost(fmt.Sprintf("%d pods: a change of %s while %s is on the bus within 100 ms (p99 of %d, after the bare watch)", l.pods, resource, phase, len(found.beyond)),
				found.beyond.p99(), 100, "%.0f ms")
		}
	}
	s.notes = append(s.notes, fmt.Sprintf("Listing took %.1f s from exec, publishing %.1f s more. The bare watch was opened before and has nothing to list; "+
		"that of a forwarder gets the changes of pods after all pods.", l.lengths[listing].Seconds(), l.lengths[publishing].Seconds()))
	r.add(s)
}
