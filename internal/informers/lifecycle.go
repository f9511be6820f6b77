package informers

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// apply starts, restarts and stops informers according to an answer of discovery.
func (s *Set) apply(ctx context.Context, a *answer) {
	s.references.Learn(maps.Clone(a.followable), a.catalog.Failed)
	gone, stale, starting := s.replan(a)
	s.stop(gone)
	s.stop(stale)
	for _, p := range starting {
		s.start(ctx, p.resource, p.followed)
	}
	s.mu.Lock()
	before := s.answer
	s.answer = a
	s.mu.Unlock()
	s.completeReferences()
	s.logAnswer(before, a)
	if before == nil {
		s.config.Discovered()
	}
	for _, w := range gone {
		if gr := w.groupResource(); a.catalog.IsMissing(gr) {
			s.config.Compare(gr)
		}
	}
}

// plan is a resource to watch.
type plan struct {
	resource event.Resource
	followed bool // watched only because objects of other resources refer to it
}

// replan returns three groups of resources. Gone resources are no longer selected, stale resources
// must restart because they are watched differently now, and starting resources are the ones to
// start. replan removes gone and stale resources from s.watched, but their informers still run.
func (s *Set) replan(a *answer) (gone, stale []*watched, starting []plan) {
	var plans []plan
	wanted := map[schema.GroupResource]plan{}
	add := func(p plan) {
		if _, ok := wanted[p.resource.GroupResource()]; !ok {
			wanted[p.resource.GroupResource()] = p
			plans = append(plans, p)
		}
	}
	for _, resource := range a.resolution.Watch {
		add(plan{resource, false})
	}
	for _, resource := range s.references.Resources() {
		add(plan{resource, true})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for gr, w := range s.watched {
		p, ok := wanted[gr]
		_, failed := a.catalog.Failed[gr.Group]
		switch {
		case failed:
			delete(wanted, gr) // the group failed, so its informers stay unchanged
		case !ok:
			gone = append(gone, w)
			delete(s.watched, gr)
		case p != plan{w.resource, w.followed}:
			stale = append(stale, w) // the version, kind, scope or selection by reference has changed
			delete(s.watched, gr)
		default:
			delete(wanted, gr)
		}
	}
	for _, p := range plans {
		if _, ok := wanted[p.resource.GroupResource()]; ok {
			starting = append(starting, p)
		}
	}
	return gone, stale, starting
}

// The reasons why an informer was stopped, other than the end of the process.
const (
	notServed    = "not_served"                   // discovery no longer shows the resource
	notSelected  = string(discovery.NotSelected)  // no selector or reference selects the resource anymore
	notWatchable = string(discovery.NotWatchable) // the resource no longer supports list and watch
	moved        = "moved"                        // the informer was restarted in another version, kind or scope
)

// noteStopped counts and logs the resources that were stopped or restarted because of an answer
// of discovery.
func (s *Set) noteStopped(before map[schema.GroupResource]event.Resource, a *answer) {
	now := s.resources()
	for gr, r := range before {
		current, watched := now[gr]
		if watched && current == r {
			continue
		}
		why := moved
		switch {
		case watched:
		case a.catalog.IsMissing(gr):
			why = notServed
		case !a.catalog.IsWatchableInAnyVersion(gr):
			why = notWatchable
		default:
			why = notSelected
		}
		s.metrics.stops.WithLabelValues(why).Inc()
		if watched {
			s.log.Info("resource restarted", "resource", gr.String(), "reason", why, "from", r.Version, "to", current.Version)
		} else {
			s.metrics.forget(gr.String())
			s.log.Info("resource no longer watched", "resource", gr.String(), "reason", why)
		}
	}
}
