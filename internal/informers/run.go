package informers

import (
	"context"
	"errors"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

func (s *Set) apply(ctx context.Context, a *answer) {
	for _, k := range s.follow.learn(maps.Clone(a.followable), a.catalogue.failed) {
		s.refer(k)
	}
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
	s.completeFollowing()
	s.logAnswer(before, a)
	if before == nil {
		s.config.Discovered()
	}
	for _, w := range gone {
		if gr := w.groupResource(); a.catalogue.gone(gr) {
			s.config.Compare(gr)
		}
	}
}

// plan is a resource that is to be watched.
type plan struct {
	resource event.Resource
	followed bool // only because others refer to it
}

// replan says what the answer asks for: which informers are not wanted any more,
// which are to be replaced, and which resources are to be started. The first two
// are no longer watched when it returns, but still run.
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
	for _, resource := range s.follow.resources() {
		add(plan{resource, true})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for gr, w := range s.watched {
		p, ok := wanted[gr]
		_, failed := a.catalogue.failed[gr.Group]
		switch {
		case failed:
			delete(wanted, gr) // whatever it says of this group is not to be trusted
		case !ok:
			gone = append(gone, w)
			delete(s.watched, gr)
		case p != plan{w.resource, w.followed}:
			stale = append(stale, w) // another version, kind or scope, or selected otherwise
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

// isExpected tells whether a watch ended as watches do: the API server closed it,
// or no longer has the history to go on (410) and the reflector lists again.
func isExpected(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled)
}
