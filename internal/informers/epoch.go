package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Epoch counts how often the history of a resource went back. The latest events on the bus
// carry it in their sequence, and nothing else stores it, so that it never disagrees with
// them. If nothing was published in an epoch before the process died, it is found again.
//
// Each resource has an epoch of its own. A restore of etcd takes every resource back, and
// the comparison of each finds that by itself. The storage of an aggregated API server may
// go back alone, any number of times.
func (s *Set) Epoch(gr schema.GroupResource) uint16 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epochOf(gr)
}

func (s *Set) epochOf(gr schema.GroupResource) uint16 { return max(s.firstEpoch, s.epochs[gr]) }

// RaiseEpoch says that the bus has events of an epoch of a resource, or that the epoch
// begins. If informers of the resource run, it takes effect when they have started again:
// they may hold states of the history before, which would count as later states in the new
// epoch. There is no epoch after [event.LastEpoch].
func (s *Set) RaiseEpoch(gr schema.GroupResource, to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs[gr] = max(s.epochs[gr], min(to, event.LastEpoch))
	s.noteRaised()
}

// RaiseEpochs does so for all resources, including those that are not known yet.
func (s *Set) RaiseEpochs(to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firstEpoch = max(s.firstEpoch, min(to, event.LastEpoch))
	s.noteRaised()
}

func (s *Set) noteRaised() {
	for gr, w := range s.watched {
		if w.epoch < s.epochOf(gr) {
			select {
			case s.raised <- struct{}{}:
			default:
			}
			return
		}
	}
}

// turnEpochs stops the informers of the resources whose epoch is due, and starts them again
// in that epoch. They enqueue what they list. All other informers must prove that what they
// have shown is still in the history of the API server.
func (s *Set) turnEpochs(ctx context.Context) {
	var turning []*watched
	s.mu.Lock()
	for gr, w := range s.watched {
		if w.epoch < s.epochOf(gr) {
			turning = append(turning, w)
			delete(s.watched, gr)
		}
	}
	s.mu.Unlock()
	if len(turning) == 0 {
		return
	}
	s.eachWatched(func(w *watched) {
		for _, i := range w.all() {
			i.proveHistory()
		}
	})
	s.stop(turning)
	for _, w := range turning {
		gr := w.groupResource()
		// What is gone in the history before can exist in this one. The comparison after the
		// first list finds what is gone.
		s.ledger.Forget(func(k event.Key) bool { return k.GroupResource() == gr })
		s.log.Warn("history went back, following it in a new epoch", "resource", gr.String(), "epoch", s.Epoch(gr))
		s.start(ctx, w.resource, w.followed)
	}
}

// epochIsDue reports whether the informers of a resource are about to start again.
func (s *Set) epochIsDue(w *watched) bool { return w.epoch < s.Epoch(w.groupResource()) }
