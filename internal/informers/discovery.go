package informers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/refusal"
)

// Run discovers resources and starts and stops their informers until ctx ends. It returns when
// everything that it started has ended. It returns an error only if the API server refuses the
// credentials before the first successful discovery. Credentials that it refuses later may be
// renewed.
func (s *Set) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.stopAll()
	watcher := discovery.Watcher{Dynamic: s.config.Dynamic, Streams: s.config.Streams, Logger: s.log}
	definitions := watcher.WatchDefinitions(ctx, s.redefined)
	s.definitions.Store(definitions)
	defer definitions.Wait()
	namespaces := watcher.WatchNamespaces(ctx, s.namespaces, s.namespaceChanged, func() { s.eachWatched((*watched).requestAlign) })
	defer namespaces.Wait()
	named := watcher.FindNamespaces(ctx, s.namespaces, s.reads(), s.config.Access)
	defer named.Wait()
	var forgetting sync.WaitGroup
	if s.config.Standby {
		forgetting.Go(func() { s.forgetRegularly(ctx) })
	}
	defer forgetting.Wait()
	defer cancel()

	var schedule discovery.Schedule
	for {
		schedule.Begin()
		err := s.rediscover(ctx)
		schedule.Finish(time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if apierrors.IsUnauthorized(err) && s.lastAnswer() == nil {
			return err
		}
		s.awaitDue(ctx, &schedule, definitions, err)
	}
}

// awaitDue blocks until discovery is due or ctx ends.
func (s *Set) awaitDue(ctx context.Context, schedule *discovery.Schedule, d *discovery.Definitions, failure error) {
	for {
		timer := time.NewTimer(time.Until(schedule.Due(s.poll(d, failure))))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			return
		case <-s.raised:
			s.startDueEpochs(ctx)
		case <-s.references.More():
			s.startReferenced(ctx)
		case <-d.Changed():
			schedule.Changed(time.Now())
		case <-s.refused:
			schedule.Changed(time.Now())
		}
		timer.Stop()
	}
}

// fastPoll is the interval of discovery while it fails, or while changes may be missed.
const fastPoll = 2 * time.Second

// poll returns the interval of discovery while no change is known. The interval is short after a
// failure. It is also short while changes may be missed, if ETags make an unchanged response cheap.
func (s *Set) poll(d *discovery.Definitions, failure error) time.Duration {
	a := s.lastAnswer()
	switch {
	case failure != nil:
	case !a.catalog.IsConditional():
		return s.config.Rediscover
	case d.IsWatched() && len(a.catalog.Failed) == 0:
		return s.config.Rediscover
	}
	return min(fastPoll, s.config.Rediscover)
}

// rediscover runs discovery and applies the result to the informers.
func (s *Set) rediscover(ctx context.Context) error {
	var known *discovery.Catalog
	before := s.lastAnswer()
	if before != nil {
		known = before.catalog
	}
	c, unchanged, err := discovery.Discover(ctx, s.config.Discovery, known)
	if unchanged && !sameKept(s.keepWatched(ctx, before.catalog, before), before.catalog.Kept) {
		// Since the last answer, a missing resource was proven to be gone, or its watch was refused.
		c, unchanged, err = discovery.Discover(ctx, s.config.Discovery, nil)
	}
	if err == nil && !unchanged {
		c.Kept = s.keepWatched(ctx, c, before)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.noteDiscovery(err, unchanged)
	if err != nil || unchanged {
		return err
	}
	a := &answer{catalog: c, resolution: s.config.Selection.Resolve(c), similar: map[string]string{}}
	for _, selector := range slices.Concat(a.resolution.Unmatched, a.resolution.UnmatchedExclude) {
		a.similar[selector] = c.Similar(selector)
	}
	if s.references.Enabled() {
		a.followable = s.config.Selection.Followable(c)
	}
	c.Compact()
	was := s.resources()
	s.apply(ctx, a)
	s.noteStopped(was, a)
	return nil
}

// keepWatched returns the watched resources that stay unchanged although discovery shows them
// differently or not at all. API servers of several versions may share one address, and each of them
// describes only itself. So keepWatched follows these rules:
//
//   - A resource that discovery does not show stays until it is proven to be gone.
//   - A resource that discovery shows only in other versions stays in its version until a watch is
//     refused.
//   - A built-in resource stays in its version even if another version is preferred now.
//
// keepWatched draws no conclusion about a group that failed.
func (s *Set) keepWatched(ctx context.Context, c *discovery.Catalog, before *answer) map[schema.GroupResource]discovery.Decision {
	kept := map[schema.GroupResource]discovery.Decision{}
	if before == nil {
		return kept
	}
	proof := discovery.NewProof(ctx, s.config.Discovery, s.reads())
	for gr, r := range s.resources() {
		shown, inVersion := c.Resource(r.GroupVersionResource())
		var why error
		switch {
		case c.Failed[gr.Group] != nil:
			continue
		case inVersion && (!discovery.IsBuiltIn(gr.Group) || shown != r || !c.IsWatchable(r)):
			continue
		case inVersion:
		case c.Shows(gr):
			if s.watchedFor(gr).refused() {
				continue
			}
		default:
			if why = proof.Gone(ctx, gr); why == nil {
				continue
			}
		}
		d := before.resolution.Decisions[gr]
		d.Resource = r // a resource that is only referred to has no decision
		kept[gr] = d
		if why != nil {
			s.noteMissing(gr, why)
		}
	}
	return kept
}

// noteMissing logs that a watched resource is missing from discovery. It logs each resource only
// once, because the responses of different API servers may alternate.
func (s *Set) noteMissing(gr schema.GroupResource, why error) {
	if w := s.watchedFor(gr); w != nil && !w.missed.Swap(true) {
		s.log.Warn("watched resource missing from discovery, keeping its informer", "resource", gr.String(), "err", why)
	}
}

// sameKept reports whether the same resources are kept in the same versions.
func sameKept(a, b map[schema.GroupResource]discovery.Decision) bool {
	return maps.EqualFunc(a, b, func(a, b discovery.Decision) bool { return a.Resource == b.Resource })
}

// resources returns the watched resources, each in its watched version.
func (s *Set) resources() map[schema.GroupResource]event.Resource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := map[schema.GroupResource]event.Resource{}
	for gr, w := range s.watched {
		all[gr] = w.resource
	}
	return all
}

// noteDiscovery records the result of discovery, and logs when discovery begins or stops failing.
func (s *Set) noteDiscovery(err error, unchanged bool) {
	result := "changed"
	switch {
	case err != nil:
		result = "failed"
	case unchanged:
		result = "unchanged"
	}
	s.metrics.discoveries.WithLabelValues(result).Inc()
	err = refusal.Explain(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && (s.failed == nil || s.failed.Error() != err.Error()):
		s.log.Error("discovery failed, retrying", "err", err)
	case err == nil && s.failed != nil:
		s.log.Info("discovery succeeds again")
	}
	s.failed = err
}

// logAnswer logs the groups whose discovery failed if they differ from those in the last answer.
func (s *Set) logAnswer(before, a *answer) {
	var failed []string
	if before != nil {
		failed = sortedKeys(before.catalog.Failed)
	}
	switch now := sortedKeys(a.catalog.Failed); {
	case slices.Equal(now, failed):
	case len(now) > 0:
		s.log.Warn("discovery of groups failed, keeping their informers", "groups", now, "err", a.catalog.Failed[now[0]])
	default:
		s.log.Info("discovery of all groups succeeds again", "groups", failed)
	}
}

// DiscoveryFailing returns the error of each group whose discovery fails. The informers of these
// groups keep running. The key "*" stands for all groups.
func (s *Set) DiscoveryFailing() map[string]error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	failing := map[string]error{}
	if s.answer != nil {
		for group, err := range s.answer.catalog.Failed {
			if group == "" {
				group = "core"
			}
			failing[group] = err
		}
	}
	if s.failed != nil {
		failing["*"] = s.failed
	}
	return failing
}
