package informers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// start creates the informers of a resource and runs them.
func (s *Set) start(ctx context.Context, r event.Resource, followed bool) {
	ctx, cancel := context.WithCancel(ctx)
	w := s.newWatched(r, followed, cancel)
	s.reselect(w)
	s.mu.Lock()
	w.epoch = s.epochOf(r.GroupResource())
	s.watched.Put(r.GroupResource(), w)
	s.mu.Unlock()
	s.completeReferences()
	s.log.Debug("informer starting", "resource", r.GroupResource().String(), "version", r.Version)
	go s.runWatched(ctx, w)
}

// runWatched keeps the informers of a resource in line with the selected and readable namespaces
// until ctx ends.
func (s *Set) runWatched(ctx context.Context, w *watched) {
	defer close(w.stopped)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.joinTerms(ctx, w) })
	if !s.config.Standby { // with Standby, begin enqueues the objects that are already listed
		select {
		case <-ctx.Done():
			return
		case <-w.everJoined:
		}
	}
	running.Go(func() { s.awaitSync(ctx, w) })
	running.Go(func() { s.relistRedefined(ctx, w) })
	for {
		pause := s.align(ctx, w, &running)
		select {
		case <-ctx.Done():
			return
		case <-w.realign:
		case <-time.After(pause):
		}
	}
}

// awaitSync waits until every informer of a resource has synced.
func (s *Set) awaitSync(ctx context.Context, w *watched) {
	for !w.synced() {
		select {
		case <-ctx.Done():
			return
		case <-w.progress:
		}
	}
	s.log.Info("informer synced", "resource", w.groupResource().String(), "objects", s.len(w))
	close(w.firstSynced)
}

// align starts missing informers and stops surplus ones. It returns the time after which to call it
// again, even if nothing requests an earlier call.
func (s *Set) align(ctx context.Context, w *watched, running *sync.WaitGroup) time.Duration {
	names, denied := discovery.Scopes(ctx, w.resource, s.namespaces, s.config.Access, w.coverage())
	if ctx.Err() != nil {
		return discovery.ReviewInterval
	}
	for namespace := range denied {
		// A working watch continues even if an access review denies access. If the API server denies the
		// watch too, the informer of a single namespace ends: the Role might have been removed with the
		// namespace, and reconciliation finds the deletes of the objects only if no informer shows them.
		if w.has(namespace) && (namespace == "" || !w.isForbidden(namespace)) {
			names = append(names, namespace)
			delete(denied, namespace)
		}
	}
	first := !w.hasAligned()
	var surplus, starting []*informer
	for namespace, i := range w.informers.All() {
		if !slices.Contains(names, namespace) {
			surplus = append(surplus, i)
		}
	}
	for _, name := range names {
		if w.has(name) {
			continue
		}
		i, err := s.newInformer(w, name)
		if err != nil { // client-go returns an error only for an informer that has started
			s.log.Error("informer not started", "resource", w.groupResource().String(), "err", err)
			continue
		}
		starting = append(starting, i)
	}
	news := s.deny(w, denied) // before replace, so that every namespace has an informer or a denial
	s.replace(w, surplus, starting)
	for _, i := range starting {
		s.run(ctx, w, i, first, running)
	}
	for _, i := range surplus {
		s.drop(w, i)
	}
	if s.grant(w, denied); news && s.references.FollowsOwners() {
		s.EnqueueAll() // objects might wait for owners that turn out to be unreadable
	}
	if first && len(names) == 0 {
		s.config.Compare(w.groupResource()) // without an informer, no sync requests a comparison
	}
	signal(w.progress)
	s.completeReferences() // a resource without informers never syncs
	if len(denied) > 0 || w.forbidden() {
		return discovery.ReviewInterval
	}
	return time.Duration(1<<63 - 1)
}

// replace changes the informers of a resource. It holds w.abandoning, so that [Set.Point] never combines the
// new selection number with the former informers.
func (s *Set) replace(w *watched, surplus, starting []*informer) {
	if len(surplus)+len(starting) == 0 {
		return
	}
	w.abandoning.Lock()
	defer w.abandoning.Unlock()
	s.reselect(w)
	w.informers.Change(func(m map[string]*informer) {
		for _, i := range surplus {
			delete(m, i.namespace)
		}
		for _, i := range starting {
			m[i.namespace] = i
		}
	})
}

// deny records and logs the namespaces to which access is denied, in addition to those that were denied
// before. It reports whether any denial is new.
func (s *Set) deny(w *watched, denied map[string]error) (news bool) {
	now, is, all := s.config.Now(), w.alignment.Load(), map[string]denial{}
	maps.Copy(all, is.denied)
	for _, namespace := range sortedKeys(denied) {
		d, known := all[namespace]
		if !known {
			news, d.since = true, now
		}
		if d.err = denied[namespace]; !known && !errors.Is(d.err, discovery.ErrNotListed) {
			s.log.Warn("access denied, rechecking", "resource", w.groupResource().String(), "namespace", namespace, "err", d.err)
		}
		all[namespace] = d
	}
	w.alignment.Store(&alignment{is.complete, all})
	return news
}

// grant ends an alignment. It keeps the denials of the namespaces in denied and forgets all other
// denials. It logs that access is granted again, unless the namespace is no longer selected.
func (s *Set) grant(w *watched, denied map[string]error) {
	is, still := w.alignment.Load(), map[string]denial{}
	for namespace, d := range is.denied {
		if _, ok := denied[namespace]; ok {
			still[namespace] = d
		} else if w.informer(w.resource.Key(namespace, "")) != nil && !errors.Is(d.err, discovery.ErrNotListed) {
			s.log.Info("access granted", "resource", w.groupResource().String(), "namespace", namespace)
		}
	}
	// The alignment is complete only if it knew the namespaces. Check denied for that, not the current state,
	// because the namespaces might have become known since the alignment began.
	complete := is.complete || !errors.Is(denied[""], discovery.ErrNotListed)
	w.alignment.Store(&alignment{complete, still})
}

// run runs an informer until ctx ends or it is dropped. first means that no earlier alignment of
// the resource was complete.
func (s *Set) run(ctx context.Context, w *watched, i *informer, first bool, running *sync.WaitGroup) {
	ctx, i.cancel = context.WithCancel(ctx)
	running.Go(func() {
		defer close(i.stopped)
		defer i.name.Release()
		i.shared.RunWithContext(ctx)
	})
	running.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-i.registration.HasSyncedChecker().Done():
		}
		i.noteSynced(s.config.Now())
		signal(w.progress)
		if !first {
			s.forgetUnlisted(w, i)
		}
		s.updateReferences(w, i)
		s.enqueueOwned(i)
		// Don't wait for the other informers, because access to their namespaces might be denied forever.
		s.config.Compare(w.groupResource())
	})
}

// forgetUnlisted forgets the states of the objects that an informer doesn't show after its first
// list. An earlier informer reported these states, and no notification about the objects follows. It
// keeps the states that a later informer has reported, if i was dropped in the meantime.
func (s *Set) forgetUnlisted(w *watched, i *informer) {
	s.abandon(w, func(k event.Key) bool { return i.covers(k) && w.informer(k) == i && i.get(k) == nil }, i.get)
}

// drop stops an informer that is no longer in w, because its namespace is no longer selected, access
// to it is denied, or another informer now covers it.
func (s *Set) drop(w *watched, i *informer) {
	s.reselect(w)
	i.cancel()
	<-i.stopped
	now := s.config.Now()
	for k := range i.keys() {
		if !s.selects(k) {
			s.references.Update(k)
		}
		o := i.get(k)
		if o == nil || o.Unselected || s.selects(k) || !s.namespaces.Exists(k.Namespace) || !s.publishesDeselected(k) {
			continue // if the bus shows the object, reconciliation finds that it is gone or not selected
		}
		s.ledger.AddTombstone(k, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: now, Cause: event.CauseWatch, Object: kept(o)})
		s.enqueue(k)
	}
	s.abandon(w, func(k event.Key) bool { // if another informer covers a key, it has reported the key or will
		return i.covers(k) && w.informer(k) == nil
	}, i.get)
	s.log.Debug("informer stopped", "resource", w.groupResource().String(), "namespace", i.namespace)
	s.config.Compare(w.groupResource())
}

// abandon forgets the reported states of the matching keys of a resource, although the bus might lack
// them. It changes [Set.Selection] first, so a consistency point that waits for these states is
// discarded. It holds w.abandoning, so [Set.Point] takes no new point until the states are forgotten.
// The first sync no longer waits for the keys.
//
// It enqueues the keys that stay dirty, because a worker might have completed such a key without a
// publish: Lookup hides a deselection during a list, and a key on hold or with a stale state waits
// for a notification. get returns the object that the ended informer shows for a key.
func (s *Set) abandon(w *watched, matches func(event.Key) bool, get func(event.Key) *event.Object) {
	w.abandoning.Lock()
	s.reselect(w)
	shown := map[event.Key]string{}
	for _, k := range s.ledger.DirtyOf(w.groupResource()) {
		if o := get(k); matches(k) && s.selectsObject(k, o) {
			shown[k] = string(o.UID)
		}
	}
	s.ledger.Abandon(matches, shown)
	w.abandoning.Unlock()
	w.firstSync.Advance()
	for _, k := range s.ledger.DirtyOf(w.groupResource()) {
		if matches(k) {
			s.EnqueueLowPriority(k)
		}
	}
}

// stop stops the informers of the resources and waits until they have ended. It forgets the states
// that they reported.
func (s *Set) stop(all []*watched) {
	for _, w := range all {
		w.cancel()
	}
	for _, w := range all {
		<-w.stopped
		s.abandon(w, func(k event.Key) bool { return k.GroupResource() == w.groupResource() }, w.get)
		s.log.Info("informer stopped", "resource", w.groupResource().String(), "version", w.resource.Version)
	}
}

// stopAll stops every informer for a shutdown. Dirty keys stay dirty until the queue is drained.
func (s *Set) stopAll() {
	s.eachWatched(func(w *watched) { w.cancel() })
	s.eachWatched(func(w *watched) { <-w.stopped })
}
