package informers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Run discovers, starts and stops informers until ctx ends, and returns when all
// that it started has ended. It returns an error only for what waiting cannot
// mend: the API server refuses our credentials from the start. If it refuses
// them later, they may yet be renewed.
func (s *Set) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.stopAll()
	definitions := s.watchDefinitions(ctx)
	defer definitions.wait()
	namespaces := s.watchNamespaces(ctx)
	defer namespaces.Wait()
	var forgetting sync.WaitGroup
	if s.config.Standby {
		forgetting.Go(func() { s.forgetOften(ctx) })
	}
	defer forgetting.Wait()
	defer cancel()

	var a agenda
	for {
		a.ask()
		err := s.rediscover(ctx)
		a.asked = time.Now()
		if ctx.Err() != nil {
			return nil
		}
		if apierrors.IsUnauthorized(err) && s.lastAnswer() == nil {
			return err
		}
		s.awaitDue(ctx, &a, definitions, err)
	}
}

// awaitDue returns when discovery is to be asked again, or ctx has ended.
func (s *Set) awaitDue(ctx context.Context, a *agenda, d *definitions, failure error) {
	for {
		timer := time.NewTimer(time.Until(a.due(s.poll(d, failure))))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			return
		case <-s.raised:
			s.turnEpoch(ctx)
		case <-s.follow.more:
			s.startFollowed(ctx)
		case <-d.changed:
			a.change(time.Now())
		}
		timer.Stop()
	}
}

// poll is how often discovery is asked where nothing is known to have changed. What
// fails is asked for eagerly, and so is what may change without our seeing it, where
// an answer that has not changed costs nothing.
func (s *Set) poll(d *definitions, failure error) time.Duration {
	a := s.lastAnswer()
	switch {
	case failure != nil:
	case !a.catalogue.etags.whole():
		return s.config.Rediscover
	case d.watched() && len(a.catalogue.failed) == 0:
		return s.config.Rediscover
	}
	return min(eager, s.config.Rediscover)
}

// rediscover asks discovery and brings the informers in line with the answer.
func (s *Set) rediscover(ctx context.Context) error {
	var known etags
	before := s.lastAnswer()
	if before != nil {
		known = before.catalogue.etags
	}
	c, unchanged, err := discoverChange(ctx, s.config.Discovery, known)
	if err == nil && !unchanged && s.misses(c) {
		// An API server that has just started does not know of its custom
		// resources yet, and answers all the same. Only one that was ready before
		// it was asked is believed.
		if err = s.serverReady(ctx); err == nil || apierrors.IsForbidden(err) {
			c, _, err = discoverChange(ctx, s.config.Discovery, etags{})
		} else {
			err = fmt.Errorf("it is not ready, and does not show everything that it did: %w", err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.noteDiscovery(err, unchanged)
	if err != nil || unchanged {
		return err
	}
	a := &answer{catalogue: c, resolution: s.config.Selection.resolve(c)}
	if s.follow.on() {
		a.followable = s.config.Selection.followable(c)
	}
	c.groups, c.lists = nil, nil // large, and needed no more
	was := s.resources()
	s.apply(ctx, a)
	s.noteStopped(was, a)
	return nil
}

// misses tells whether something that is watched is not served any more.
func (s *Set) misses(c *catalogue) bool {
	return slices.ContainsFunc(s.Watched(), c.gone)
}

// resources are those that are watched, in the versions that are watched.
func (s *Set) resources() map[schema.GroupResource]event.Resource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := map[schema.GroupResource]event.Resource{}
	for gr, w := range s.watched {
		all[gr] = w.resource
	}
	return all
}

// noteDiscovery keeps the outcome for the status, and logs a change of it.
func (s *Set) noteDiscovery(err error, unchanged bool) {
	result := "changed"
	switch {
	case err != nil:
		result = "failed"
	case unchanged:
		result = "unchanged"
	}
	s.metrics.discoveries.WithLabelValues(result).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && (s.failed == nil || s.failed.Error() != err.Error()):
		s.log.Error("the API server cannot be asked what it serves; will be tried again", "err", err)
	case err == nil && s.failed != nil:
		s.log.Info("the API server says again what it serves")
	}
	s.failed = err
}

// logAnswer logs what a user would want to know and did not change by itself
// since the answer before.
func (s *Set) logAnswer(before, a *answer) {
	var failed, unmatched []string
	if before != nil {
		failed, unmatched = sortedKeys(before.catalogue.failed), before.resolution.Unmatched
	}
	switch now := sortedKeys(a.catalogue.failed); {
	case slices.Equal(now, failed):
	case len(now) > 0:
		s.log.Warn("discovery of some groups fails; their informers are left as they are", "groups", now, "err", a.catalogue.failed[now[0]])
	default:
		s.log.Info("discovery of all groups succeeds again", "groups", failed)
	}
	if now := a.resolution.Unmatched; !slices.Equal(now, unmatched) && len(now) > 0 {
		s.log.Info("some selectors match nothing at present; they wait", "selectors", now)
	}
}

// DiscoveryFailing gives the groups whose discovery fails, and why: of them nothing is
// concluded. The key "*" stands for all, where nothing is known at all.
func (s *Set) DiscoveryFailing() map[string]error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	failing := map[string]error{}
	if s.answer != nil {
		for group, err := range s.answer.catalogue.failed {
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
