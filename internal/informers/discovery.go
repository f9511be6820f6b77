package informers

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/refusal"
)

// Run discovers resources and starts and stops their informers until ctx ends. It returns when
// everything that it started has ended. It returns an error only if the API server refuses the
// credentials before the first successful discovery. If the API server refuses them later, Run
// retries, because the credentials might be renewed.
func (s *Set) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.stopAll()
	watcher := discovery.Watcher{Dynamic: s.config.Dynamic, Streams: s.config.Streams, Logger: s.log}
	definitions := watcher.WatchDefinitions(ctx, s.redefined)
	s.definitions.Store(definitions)
	defer definitions.Wait()
	namespaces := watcher.WatchNamespaces(ctx, s.namespaces, s.namespaceChanged, func() { s.eachWatched((*watched).requestAlign) })
	defer namespaces.Wait()
	named := watcher.FindNamespaces(ctx, s.namespaces, s.config.Reads, s.config.Access)
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(schedule.Due(s.poll(d, failure)))):
			return
		case <-s.raised:
			s.startDueEpochs(ctx)
		case <-s.references.More():
			if a := s.lastAnswer(); a != nil {
				s.apply(ctx, a) // starts the informers of the resources that objects now refer to
			}
		case <-d.Changed():
			schedule.Changed(time.Now())
		case <-s.refused:
			schedule.Changed(time.Now())
		}
	}
}

// fastPoll is the interval of discovery while it fails, or while changes might be missed.
const fastPoll = 2 * time.Second

// poll returns the interval of discovery while no change is known. The interval is short after a
// failure. It is also short while changes might be missed, if ETags make an unchanged response cheap.
func (s *Set) poll(d *discovery.Definitions, failure error) time.Duration {
	a := s.lastAnswer()
	switch {
	case failure != nil:
	case !a.Catalog.IsConditional():
		return s.config.Rediscover
	case d.IsWatched() && len(a.Catalog.Failed) == 0:
		return s.config.Rediscover
	}
	return min(fastPoll, s.config.Rediscover)
}

// rediscover runs discovery and applies the result to the informers.
func (s *Set) rediscover(ctx context.Context) error {
	before, was := s.lastAnswer(), s.plans()
	a, err := s.survey.Ask(ctx, before, was)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	unchanged := err == nil && a == before
	s.noteDiscovery(err, unchanged)
	if err != nil || unchanged {
		return err
	}
	s.apply(ctx, a)
	s.noteStopped(was, a)
	return nil
}

// noteMissing logs that a watched resource is missing from discovery. It logs each resource only
// once, because the responses of different API servers might alternate.
func (s *Set) noteMissing(gr schema.GroupResource, why error) {
	if w := s.watchedFor(gr); w != nil && !w.missed.Swap(true) {
		s.log.Warn("watched resource missing from discovery, keeping its informer", "resource", gr.String(), "err", why)
	}
}

// plans returns the watched resources, each in its watched version.
func (s *Set) plans() map[schema.GroupResource]survey.Plan {
	all := map[schema.GroupResource]survey.Plan{}
	for gr, w := range s.watched.All() {
		all[gr] = survey.Plan{Resource: w.resource, Followed: w.followed}
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
	s.counters.Discoveries.WithLabelValues(result).Inc()
	err = refusal.Explain(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && (s.failed == nil || s.failed.Error() != err.Error()):
		s.log.Error("discovery failed, retrying", "err", err)
	case err == nil && s.failed != nil:
		s.log.Info("discovery recovered")
	}
	s.failed = err
}

// logAnswer logs the groups whose discovery failed if they differ from those in the last answer.
func (s *Set) logAnswer(before, a *survey.Answer) {
	var failed []string
	if before != nil {
		failed = sortedKeys(before.Catalog.Failed)
	}
	switch now := sortedKeys(a.Catalog.Failed); {
	case slices.Equal(now, failed):
	case len(now) > 0:
		s.log.Warn("discovery of groups failed, keeping their informers", "groups", now, "err", a.Catalog.Failed[now[0]])
	default:
		s.log.Info("discovery of all groups recovered", "groups", failed)
	}
}

// DiscoveryFailing returns the error of each group whose discovery fails. The informers of these
// groups keep running. The key "*" stands for all groups.
func (s *Set) DiscoveryFailing() map[string]error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	failing := map[string]error{}
	if s.answer != nil {
		for group, err := range s.answer.Catalog.Failed {
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
