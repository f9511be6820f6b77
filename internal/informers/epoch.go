package informers

// Epoch counts how often the cluster's history went back. It is not kept anywhere
// of its own: it is that of the latest events on the bus, which carry it in their
// sequence, so that it can never disagree with them. An epoch in which nothing was
// published yet when the process died is found a second time.
func (s *Set) Epoch() uint16 { return uint16(s.epoch.Load()) }

// RaiseEpoch says that the bus has events of an epoch.
func (s *Set) RaiseEpoch(to uint16) {
	for {
		now := s.epoch.Load()
		if uint32(to) <= now || s.epoch.CompareAndSwap(now, uint32(to)) {
			return
		}
	}
}

// beginEpoch starts the epoch after the given one and has every key looked at
// again.
func (s *Set) beginEpoch(after uint16) {
	if !s.epoch.CompareAndSwap(uint32(after), uint32(after)+1) {
		return // someone else did
	}
	s.log.Warn("the cluster's history went back (etcd was restored); following it in a new epoch", "epoch", after+1)
	s.EnqueueAll()
}

// EnqueueAll enqueues every key of every indexer, as a resync does.
func (s *Set) EnqueueAll() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.watched {
		for _, i := range w.informers {
			for _, name := range i.shared.GetStore().ListKeys() {
				s.config.Enqueue(i.key(name))
			}
		}
	}
}
