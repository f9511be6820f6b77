package informers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// settling are the pauses after which discovery is asked again once a
// CustomResourceDefinition has changed: what it says lags behind a little.
var settling = [...]time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// Run discovers, starts and stops informers until ctx ends, and returns when all
// that it started has ended. It returns an error only for what waiting cannot
// mend: the API server refuses our credentials from the start. If it refuses
// them later, they may yet be renewed.
func (s *Set) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.stopAll()
	changed := make(chan struct{}, 1)
	definitions := s.watchDefinitions(ctx, changed)
	defer definitions.Wait()
	defer cancel()

	again := 0
	for {
		err := s.rediscover(ctx)
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
			return nil
		case apierrors.IsUnauthorized(err) && s.lastAnswer() == nil:
			return err
		case err != nil:
			pause = min(settling[len(settling)-1], s.config.Rediscover)
		case again > 0:
			pause = settling[len(settling)-again]
			again--
		default:
			pause = s.config.Rediscover
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.raised:
			s.turnEpoch(ctx)
		case <-changed:
			again = len(settling)
		}
		timer.Stop()
	}
}

// rediscover asks discovery and brings the informers in line with the answer.
func (s *Set) rediscover(ctx context.Context) error {
	c, err := discover(ctx, s.config.Discovery)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !s.noteDiscovery(err) {
		return err
	}
	a := &answer{catalogue: c, resolution: s.config.Selection.resolve(c)}
	c.groups, c.lists = nil, nil // large, and needed no more
	s.apply(ctx, a)
	return nil
}

// noteDiscovery keeps the outcome for the status, logs a change of it, and tells
// whether there is a catalogue to go by.
func (s *Set) noteDiscovery(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (s.failed == nil || s.failed.Error() != err.Error()) {
		s.log.Error("the API server cannot be asked what it serves; will be tried again", "err", err)
	}
	s.failed = err
	return err == nil
}

func (s *Set) apply(ctx context.Context, a *answer) {
	gone, stale, starting := s.replan(a)
	s.stop(gone)
	s.stop(stale)
	for _, resource := range starting {
		s.start(ctx, resource)
	}
	s.mu.Lock()
	before := s.answer
	s.answer = a
	s.mu.Unlock()
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

// replan says what the answer asks for: which informers are not wanted any more,
// which are to be replaced, and which resources are to be started. The first two
// are no longer watched when it returns, but still run.
func (s *Set) replan(a *answer) (gone, stale []*watched, starting []event.Resource) {
	wanted := map[schema.GroupResource]event.Resource{}
	for _, resource := range a.resolution.Watch {
		wanted[resource.GroupResource()] = resource
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for gr, w := range s.watched {
		resource, ok := wanted[gr]
		_, failed := a.catalogue.failed[gr.Group]
		switch {
		case failed:
			delete(wanted, gr) // whatever it says of this group is not to be trusted
		case !ok:
			gone = append(gone, w)
			delete(s.watched, gr)
		case resource != w.resource:
			stale = append(stale, w) // another version, kind or scope
			delete(s.watched, gr)
		default:
			delete(wanted, gr)
		}
	}
	for _, resource := range a.resolution.Watch { // in its order
		if _, ok := wanted[resource.GroupResource()]; ok {
			starting = append(starting, resource)
		}
	}
	return gone, stale, starting
}

// logAnswer logs what a user would want to know and did not change by itself
// since the answer before.
func (s *Set) logAnswer(before, a *answer) {
	var failed, unmatched []string
	if before != nil {
		failed, unmatched = sortedKeys(before.catalogue.failed), before.resolution.Unmatched
	}
	if now := sortedKeys(a.catalogue.failed); !slices.Equal(now, failed) && len(now) > 0 {
		s.log.Warn("discovery of some groups fails; their informers are left as they are", "groups", now, "err", a.catalogue.failed[now[0]])
	}
	if now := a.resolution.Unmatched; !slices.Equal(now, unmatched) && len(now) > 0 {
		s.log.Info("some selectors match nothing at present; they wait", "selectors", now)
	}
}

// start makes the informers of a resource and runs them.
func (s *Set) start(ctx context.Context, r event.Resource) {
	namespaces := s.config.Namespaces
	if len(namespaces) == 0 || !r.Namespaced {
		namespaces = []string{""}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watched{
		resource: r, informers: map[string]*informer{},
		snapshot: &snapshot{empty: make(chan struct{}, 1)}, cancel: cancel, stopped: make(chan struct{}),
	}
	for _, namespace := range namespaces {
		i, err := s.newInformer(scope{resource: r, namespace: namespace}, w.snapshot)
		if err != nil { // client-go refuses only an informer that has started
			s.log.Error("informer cannot be made", "resource", r.GroupResource().String(), "err", err)
			cancel()
			return
		}
		w.informers[namespace] = i
	}
	s.mu.Lock()
	s.watched[r.GroupResource()] = w
	s.mu.Unlock()
	s.log.Debug("informer starting", "resource", r.GroupResource().String(), "version", r.Version)
	go s.runWatched(ctx, w)
}

func (s *Set) runWatched(ctx context.Context, w *watched) {
	defer close(w.stopped)
	defer w.releaseNames()
	if !s.beginSnapshot(ctx, w) {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, i := range w.informers {
		running.Go(func() { i.shared.RunWithContext(ctx) })
		running.Go(func() {
			if i.waitSynced(ctx) {
				// Each for itself: one namespace may be forbidden for ever.
				s.config.Compare(w.groupResource())
			}
		})
	}
	for _, i := range w.informers {
		if !i.waitSynced(ctx) {
			return
		}
	}
	s.log.Info("informer synced", "resource", w.groupResource().String(), "objects", w.len())
	s.finishSnapshot(ctx, w)
}

// releaseNames is for when the informers have ended, or have not been started.
func (w *watched) releaseNames() {
	for _, i := range w.informers {
		i.name.Release()
	}
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
		s.log.Info("informer stopped", "resource", w.groupResource().String(), "version", w.resource.Version)
	}
}

// stopAll is for the end: what is dirty stays so until the queue is drained.
func (s *Set) stopAll() {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.watched))
	s.mu.RUnlock()
	for _, w := range all {
		w.cancel()
	}
	for _, w := range all {
		<-w.stopped
	}
}

// isExpected tells whether a watch ended as watches do: the API server closed it,
// or no longer has the history to go on (410) and the reflector lists again.
func isExpected(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled)
}
