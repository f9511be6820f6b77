package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Epoch returns the epoch of a resource. A new epoch begins when the history of the resource is rolled back,
// or when another cluster takes over the cluster name. Only the bus stores epochs: the sequence attribute of
// an event has the epoch of the event, and the claim has the minimum epoch of all resources. So an epoch
// never disagrees with the events. After a restart, a rollback whose epoch has no events is detected again.
//
// Each resource has its own epoch. A restore of etcd rolls back every resource, and reconciliation
// detects the rollback for each resource separately. The storage of an aggregated API server might be
// rolled back independently.
func (s *Set) Epoch(gr schema.GroupResource) uint16 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epochOf(gr)
}

func (s *Set) epochOf(gr schema.GroupResource) uint16 { return max(s.firstEpoch, s.epochs[gr]) }

// RaiseEpoch sets the epoch of a resource, unless the epoch is already higher. Call it when the bus
// has events of that epoch, or when the history was rolled back. If informers of the resource run,
// the epoch takes effect after they have restarted. The running informers might hold states of the
// previous history, which would otherwise count as later states in the new epoch. No epoch follows
// [event.LastEpoch].
func (s *Set) RaiseEpoch(gr schema.GroupResource, to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs[gr] = max(s.epochs[gr], min(to, event.LastEpoch))
	s.noteRaised()
}

// RaiseEpochs raises the epochs of all resources, including resources that are not known yet.
func (s *Set) RaiseEpochs(to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firstEpoch = max(s.firstEpoch, min(to, event.LastEpoch))
	s.noteRaised()
}

// noteRaised requests startDueEpochs if the informers of a resource must restart. The caller holds
// the lock.
func (s *Set) noteRaised() {
	for gr, w := range s.watched.All() {
		if w.epoch < s.epochOf(gr) {
			signal(s.raised)
		}
	}
}

// startDueEpochs restarts the informers of the resources whose epoch was raised. These informers
// list again and enqueue all objects. All other informers must prove that the API server's history
// still contains the changes that they have shown.
func (s *Set) startDueEpochs(ctx context.Context) {
	var due []*watched
	s.mu.Lock()
	s.watched.Change(func(m map[schema.GroupResource]*watched) {
		for gr, w := range m {
			if w.epoch < s.epochOf(gr) {
				due = append(due, w)
				delete(m, gr)
			}
		}
	})
	s.restarting = len(due) > 0
	s.mu.Unlock()
	if len(due) == 0 {
		return
	}
	s.eachWatched(func(w *watched) {
		for _, i := range w.all() {
			i.history.Prove()
		}
	})
	s.stop(due)
	for _, w := range due {
		gr := w.groupResource()
		// Forget the tombstones too, because an object that was deleted in the previous history can exist
		// in the current one. The comparison after the first list finds the objects that do not exist.
		s.ledger.Forget(func(k event.Key) bool { return k.GroupResource() == gr })
		s.log.Warn("resource history was rolled back, restarting its informers in a new epoch", "resource", gr.String(), "epoch", s.Epoch(gr))
		s.start(ctx, w.resource, w.followed)
	}
	s.mu.Lock()
	s.restarting = false
	s.mu.Unlock()
	s.completeReferences()
}

// epochIsDue reports whether the informers of a resource will soon restart in a higher epoch.
func (s *Set) epochIsDue(w *watched) bool { return w.epoch < s.Epoch(w.groupResource()) }
