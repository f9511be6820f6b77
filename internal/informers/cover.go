package informers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// fewNamespaces is up to how many namespaces are watched one by one. Above, one watch of
// all is cheaper for the API server, if we are allowed it, although it brings what is not
// selected as well. Where the number goes up and down, what is begun is kept from half to
// twice as many.
const fewNamespaces = 10

// start makes the informers of a resource and runs them.
func (s *Set) start(ctx context.Context, r event.Resource, followed bool) {
	ctx, cancel := context.WithCancel(ctx)
	w := newWatched(r, followed, cancel)
	s.mu.Lock()
	s.watched[r.GroupResource()] = w
	s.mu.Unlock()
	s.completeFollowing()
	s.log.Debug("informer starting", "resource", r.GroupResource().String(), "version", r.Version)
	go s.runWatched(ctx, w)
}

// runWatched keeps the informers of a resource in line with what is selected and allowed,
// until ctx ends.
func (s *Set) runWatched(ctx context.Context, w *watched) {
	defer close(w.stopped)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.takePart(ctx, w) })
	if !s.config.Standby { // else what is listed before is looked at again by begin
		select {
		case <-ctx.Done():
			return
		case <-w.snapshot.ever:
		}
	}
	running.Go(func() { s.awaitSync(ctx, w) })
	for {
		pause := s.align(ctx, w, &running)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.again:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// awaitSync tells when all has been listed for the first time.
func (s *Set) awaitSync(ctx context.Context, w *watched) {
	for !w.synced() {
		select {
		case <-ctx.Done():
			return
		case <-w.progress:
		}
	}
	s.log.Info("informer synced", "resource", w.groupResource().String(), "objects", s.len(w))
	close(w.first)
}

// align starts the informers that are missing and stops those that are not wanted any
// more. It returns after what time it is to be called again, if nothing happens before.
func (s *Set) align(ctx context.Context, w *watched, running *sync.WaitGroup) time.Duration {
	names, denied := s.scopes(ctx, w)
	if ctx.Err() != nil {
		return askAgain
	}
	for namespace := range denied {
		// A watch that works goes on, whatever is answered now: if it may not, it will
		// end.
		if w.has(namespace) {
			names = append(names, namespace)
			delete(denied, namespace)
		}
	}
	var surplus []*informer
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	w.mu.Lock()
	for name, i := range w.informers {
		if missing[name] {
			delete(missing, name)
			continue
		}
		surplus = append(surplus, i)
		delete(w.informers, name)
	}
	w.mu.Unlock()
	for _, name := range names {
		if !missing[name] {
			continue
		}
		i, err := s.newInformer(scope{resource: w.resource, namespace: name, followed: w.followed}, w.snapshot)
		if err != nil { // client-go refuses only an informer that has started
			s.log.Error("informer cannot be made", "resource", w.groupResource().String(), "err", err)
			continue
		}
		s.run(ctx, w, i, running)
	}
	for _, i := range surplus {
		s.drop(w, i)
	}
	first := !w.hasAligned()
	if s.deny(w, denied) && s.follow.owners {
		s.EnqueueAll() // some may wait for owners that cannot be read
	}
	if first && len(names) == 0 {
		s.config.Compare(w.groupResource()) // no informer will ask for it
	}
	w.advanced()
	if len(denied) > 0 || w.forbidden() {
		return askAgain
	}
	return time.Duration(1<<63 - 1)
}

// scopes says what informers a resource is to have, by namespace, "" for one of all; and
// where it is to have none because we may not.
func (s *Set) scopes(ctx context.Context, w *watched) (names []string, denied map[string]error) {
	everywhere := []string{""}
	if !w.resource.Namespaced {
		return s.permitted(ctx, w.resource, everywhere)
	}
	if err := s.namespaces.ready(); err != nil {
		return nil, map[string]error{"": err}
	}
	list, known := s.namespaces.list()
	switch {
	case known && !s.namespaces.nearlyAll() && len(list) <= w.few(s.few):
		return s.permitted(ctx, w.resource, list)
	case w.watchesAll():
		return everywhere, nil // and it works, whatever would be answered now
	case !known || s.denied(ctx, w.resource, "") == nil:
		return s.permitted(ctx, w.resource, everywhere)
	}
	return s.permitted(ctx, w.resource, list)
}

// few is the number of namespaces up to which each is watched by itself, given what it is
// for a resource that is not watched yet.
func (w *watched) few(atFirst int) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	_, wide := w.informers[""]
	switch {
	case wide:
		return atFirst / 2
	case len(w.informers) > 0:
		return atFirst * 2
	}
	return atFirst
}

// permitted leaves out where we may not list and watch.
func (s *Set) permitted(ctx context.Context, r event.Resource, namespaces []string) (names []string, denied map[string]error) {
	denied = map[string]error{}
	for _, namespace := range namespaces {
		if err := s.denied(ctx, r, namespace); err != nil {
			denied[namespace] = err
		} else {
			names = append(names, namespace)
		}
	}
	return names, denied
}

// deny notes and logs what we may not watch, and tells whether any is new.
func (s *Set) deny(w *watched, denied map[string]error) (news bool) {
	now := s.config.Now()
	w.mu.Lock()
	before := w.denied
	// Namespaces that are not known yet will be: nothing is decided before.
	w.denied, w.aligned = map[string]denial{}, w.aligned || s.namespaces.ready() == nil || !w.resource.Namespaced
	for namespace, err := range denied {
		d := denial{err, now}
		if old, ok := before[namespace]; ok {
			d.since = old.since
		}
		w.denied[namespace] = d
	}
	w.mu.Unlock()
	for _, namespace := range sortedKeys(denied) {
		_, known := before[namespace]
		news = news || !known
		if !known && !errors.Is(denied[namespace], errNotListed) {
			s.log.Warn("resource is not watched; it will be asked again whether it may be", "resource", w.groupResource().String(), "namespace", namespace, "err", denied[namespace])
		}
	}
	for namespace := range before {
		if _, still := denied[namespace]; !still && !errors.Is(before[namespace].err, errNotListed) {
			s.log.Info("resource may be watched now", "resource", w.groupResource().String(), "namespace", namespace)
		}
	}
	return news
}

// run runs a new informer until ctx ends or it is dropped.
func (s *Set) run(ctx context.Context, w *watched, i *informer, running *sync.WaitGroup) {
	ctx, i.cancel = context.WithCancel(ctx)
	w.mu.Lock()
	w.informers[i.namespace] = i
	w.mu.Unlock()
	running.Go(func() {
		defer close(i.stopped)
		defer i.name.Release()
		i.shared.RunWithContext(ctx)
	})
	running.Go(func() {
		if i.waitSynced(ctx) {
			i.noteSynced(s.config.Now())
			w.advanced()
			s.referAll(w, i)
			s.dependents(i)
			// Each for itself: one namespace may be forbidden for ever.
			s.config.Compare(w.groupResource())
		}
	})
}

// drop stops an informer that covers what is not selected any more, or what another covers
// now. It is no longer among those of w.
func (s *Set) drop(w *watched, i *informer) {
	i.cancel()
	<-i.stopped
	now := s.config.Now()
	for _, name := range i.shared.GetStore().ListKeys() {
		k := i.key(name)
		if !s.selects(k) {
			s.refer(k)
		}
		o := i.get(k)
		if o == nil || s.selects(k) || !s.namespaces.exists(k.Namespace) || !s.tells(k) {
			continue // of a namespace that is gone the comparison says what is deleted
		}
		s.dirty.bury(k, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: now, Cause: event.CauseWatch, Object: kept(o)})
		s.enqueue(k)
	}
	s.dirty.abandon(func(k event.Key) bool {
		return k.GroupResource() == w.groupResource() && (i.namespace == "" || k.Namespace == i.namespace)
	})
	s.log.Debug("informer stopped", "resource", w.groupResource().String(), "namespace", i.namespace)
	s.config.Compare(w.groupResource())
}

// stop waits until the informers of all these resources have ended, and forgets
// what they have reported.
func (s *Set) stop(all []*watched) {
	for _, w := range all {
		w.cancel()
	}
	for _, w := range all {
		<-w.stopped
		s.dirty.abandon(func(k event.Key) bool { return k.GroupResource() == w.groupResource() })
		for _, i := range w.all() {
			if failpoint.Bug("moved-is-deleted") {
				for _, o := range i.shared.GetStore().List() {
					s.onDelete(i, o)
				}
			}
		}
		s.log.Info("informer stopped", "resource", w.groupResource().String(), "version", w.resource.Version)
	}
}

// stopAll is for the end: what is dirty stays so until the queue is drained.
func (s *Set) stopAll() {
	var all []*watched
	s.eachWatched(func(w *watched) {
		w.cancel()
		all = append(all, w)
	})
	for _, w := range all {
		<-w.stopped
	}
}
