package informers

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// State is where an informer is in its life.
type State string

// The states of an informer. One that is degraded is tried again, without end; what
// it has shown before stays.
const (
	Starting State = "starting" // its first list is not in
	Synced   State = "synced"
	Degraded State = "degraded" // the last list or watch failed
	Stopped  State = "stopped"
)

// worse tells whether a is the state to show of two.
func (a State) worse(b State) bool {
	order := []State{Synced, Starting, Degraded, Stopped}
	return slices.Index(order, a) > slices.Index(order, b)
}

// The reasons for which an informer is stopped, besides the end of the process.
const (
	notServed    = "not_served"    // discovery does not show the resource any more
	notSelected  = "not_selected"  // a selector that named it means another one now
	notWatchable = "not_watchable" // it is served, but no longer for list and watch
	moved        = "moved"         // it has been started again, in another version, kind or scope
)

// status is the informer's as of now. It is consistent in itself.
func (i *informer) status() Status {
	st := Status{Resource: i.resource, Namespace: i.namespace, Synced: i.synced()}
	i.mu.Lock()
	defer i.mu.Unlock()
	st.Failing, st.Since = i.failing, i.began
	if i.since.After(st.Since) { // since then it fails, or does not any more
		st.Since = i.since
	}
	switch {
	case i.failing != nil:
		st.State, st.Reason = Degraded, reason(i.failing)
	case st.Synced:
		st.State = Synced
	default:
		st.State = Starting
	}
	return st
}

func (i *informer) noteSynced(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.began = now
}

// remembered is how many stopped resources are remembered: a cluster may make and
// remove definitions without end.
const remembered = 100

// stopped are the resources that were stopped last, the latest at the end.
type stopped []Status

func (s *stopped) note(st Status) {
	s.forget(st.Resource.GroupResource())
	*s = append(*s, st)
	if n := len(*s) - remembered; n > 0 {
		*s = slices.Delete(*s, 0, n)
	}
}

func (s *stopped) forget(gr schema.GroupResource) {
	*s = slices.DeleteFunc(*s, func(st Status) bool { return st.Resource.GroupResource() == gr })
}

// Stopped gives the resources that were watched and are not any more, why, and since
// when, in that order. It remembers a limited number of them.
func (s *Set) Stopped() []Status {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.stopped)
}

// noteStopped compares what was watched before an answer with what is watched now.
func (s *Set) noteStopped(before map[schema.GroupResource]event.Resource, a *answer) {
	now := s.resources()
	s.mu.Lock()
	defer s.mu.Unlock()
	for gr := range now {
		s.stopped.forget(gr)
	}
	for gr, r := range before {
		current, watched := now[gr]
		if watched && current == r {
			continue
		}
		why := moved
		switch {
		case watched:
		case a.catalogue.gone(gr):
			why = notServed
		case !a.catalogue.watchableInAny(gr):
			why = notWatchable
		default:
			why = notSelected
		}
		s.metrics.stops.WithLabelValues(why).Inc()
		if watched {
			s.log.Info("resource is watched anew", "resource", gr.String(), "reason", why, "from", r.Version, "to", current.Version)
		} else {
			s.stopped.note(Status{Resource: r, State: Stopped, Reason: why, Since: s.config.Now()})
			s.log.Info("resource is not watched any more", "resource", gr.String(), "reason", why)
		}
	}
}
