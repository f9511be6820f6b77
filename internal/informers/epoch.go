package informers

import (
	"context"
	"maps"
	"slices"
)

// Epoch counts how often the cluster's history went back. It is not kept anywhere
// of its own: it is that of the latest events on the bus, which carry it in their
// sequence, so that it can never disagree with them. An epoch in which nothing was
// published yet when the process died is found a second time.
func (s *Set) Epoch() uint16 { return uint16(s.epoch.Load()) }

// RaiseEpoch says that the bus has events of an epoch, or that it has to begin.
// While informers run, it takes effect once they have been started anew: what
// they hold may be of the history that was given up, and would count as the
// later state in the new one.
func (s *Set) RaiseEpoch(to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextEpoch = max(s.nextEpoch, to)
	switch {
	case s.nextEpoch == s.Epoch():
	case len(s.watched) == 0:
		s.epoch.Store(uint32(s.nextEpoch))
	default:
		select {
		case s.raised <- struct{}{}:
		default:
		}
	}
}

// turnEpoch stops all informers, begins the epoch that is due, and starts them
// again. What they then list is enqueued.
func (s *Set) turnEpoch(ctx context.Context) {
	s.mu.Lock()
	if s.nextEpoch == s.Epoch() {
		s.mu.Unlock()
		return
	}
	all := slices.Collect(maps.Values(s.watched))
	clear(s.watched)
	s.mu.Unlock()
	s.stop(all)

	s.mu.Lock()
	s.epoch.Store(uint32(s.nextEpoch))
	s.mu.Unlock()
	s.log.Warn("the cluster's history went back (etcd was restored); following it in a new epoch", "epoch", s.Epoch())
	for _, w := range all {
		s.start(ctx, w.resource, w.followed)
	}
}

// epochIsDue tells whether all informers are about to be started anew.
func (s *Set) epochIsDue() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nextEpoch != s.Epoch()
}

// EnqueueAll enqueues every key of every indexer, as a resync does.
func (s *Set) EnqueueAll() {
	s.eachWatched(func(w *watched) {
		for _, i := range w.all() {
			for _, name := range i.shared.GetStore().ListKeys() {
				s.enqueueBehind(i.key(name))
			}
		}
	})
}
