package informers

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
)

// apply starts, restarts, and stops informers according to an answer of discovery.
func (s *Set) apply(ctx context.Context, a *survey.Answer) {
	s.references.Learn(maps.Clone(a.Followable), a.Catalog.Failed)
	gone, stale, starting := s.replan(a)
	s.stop(gone)
	s.stop(stale)
	for _, p := range starting {
		s.start(ctx, p.Resource, p.Followed)
	}
	for _, w := range stale { // a definition changed, and its notification might have reached only the former informers
		if now := s.watchedFor(w.groupResource()); now != nil {
			signal(now.redefined)
		}
	}
	s.mu.Lock()
	before := s.answer
	s.answer, s.restarting = a, false
	s.mu.Unlock()
	s.completeReferences()
	s.logAnswer(before, a)
	if before == nil {
		s.config.Discovered()
	}
	for _, w := range gone {
		if gr := w.groupResource(); a.Catalog.IsMissing(gr) {
			s.config.Compare(gr)
		}
	}
}

// replan removes the gone and stale resources from s.watched. Their informers still run. It also
// returns the resources to start. See [survey.Answer.Changes].
func (s *Set) replan(a *survey.Answer) (gone, stale []*watched, starting []survey.Plan) {
	leaving, changed, starting := a.Changes(s.references.Resources(), s.plans())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarting = true
	s.watched.Change(func(m map[schema.GroupResource]*watched) {
		take := func(all []schema.GroupResource) (taken []*watched) {
			for _, gr := range all {
				taken = append(taken, m[gr])
				delete(m, gr)
			}
			return taken
		}
		gone, stale = take(leaving), take(changed)
	})
	return gone, stale, starting
}

// The reasons why an informer was stopped, other than the end of the process.
const (
	notServed    = "not_served"                   // discovery no longer shows the resource
	notSelected  = string(discovery.NotSelected)  // no selector or reference selects the resource anymore
	notWatchable = string(discovery.NotWatchable) // the resource no longer supports list and watch
	moved        = "moved"                        // the informer was restarted in another version, kind, or scope
)

// noteStopped counts and logs the resources that were stopped or restarted because of an answer
// of discovery.
func (s *Set) noteStopped(before map[schema.GroupResource]survey.Plan, a *survey.Answer) {
	now := s.plans()
	for gr, was := range before {
		is, watched := now[gr]
		if watched && is.Resource == was.Resource {
			continue
		}
		why := moved
		switch {
		case watched:
		case a.Catalog.IsMissing(gr):
			why = notServed
		case !a.Catalog.IsWatchableInAnyVersion(gr):
			why = notWatchable
		default:
			why = notSelected
		}
		s.counters.Stops.WithLabelValues(why).Inc()
		if watched {
			s.log.Info("resource restarted", "resource", gr.String(), "reason", why, "from", was.Resource.Version, "to", is.Resource.Version)
		} else {
			s.counters.Forget(gr.String())
			s.log.Info("resource no longer watched", "resource", gr.String(), "reason", why)
		}
	}
}
