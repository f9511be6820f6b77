package informers

import (
	"context"
	"errors"
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
// mend: the API server refuses our credentials.
func (s *Set) Run(ctx context.Context) error {
	defer s.stopAll()
	changed := make(chan struct{}, 1)
	definitions := s.watchDefinitions(ctx, changed)
	defer definitions.Wait()

	again := 0
	for {
		err := s.rediscover(ctx)
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
			return nil
		case apierrors.IsUnauthorized(err):
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
	r := s.config.Selection.resolve(c)
	for _, group := range sortedKeys(c.failed) {
		s.log.Warn("discovery of a group fails; its informers are left as they are", "group", group, "err", c.failed[group])
	}
	s.apply(ctx, c, r)
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

func (s *Set) apply(ctx context.Context, c *catalogue, r Resolution) {
	wanted := map[schema.GroupResource]event.Resource{}
	for _, resource := range r.Watch {
		wanted[resource.GroupResource()] = resource
	}
	var gone, moved []*watched
	s.mu.Lock()
	for gr, w := range s.watched {
		resource, ok := wanted[gr]
		_, failed := c.failed[gr.Group]
		switch {
		case failed:
			delete(wanted, gr) // whatever it says of this group is not to be trusted
		case !ok:
			gone = append(gone, w)
			delete(s.watched, gr)
		case resource != w.resource:
			moved = append(moved, w)
			delete(s.watched, gr)
		default:
			delete(wanted, gr)
		}
	}
	s.mu.Unlock()

	for _, w := range append(gone, moved...) {
		w.stop()
		s.dirty.abandon(func(k event.Key) bool { return k.GroupResource() == w.resource.GroupResource() })
		s.log.Info("informer stopped", "resource", w.resource.GroupResource().String(), "version", w.resource.Version)
	}
	for _, resource := range r.Watch {
		if _, ok := wanted[resource.GroupResource()]; ok {
			s.start(ctx, resource)
		}
	}
	s.mu.Lock()
	first := !s.resolved
	s.resolved, s.resolution = true, r
	s.mu.Unlock()
	if first {
		s.config.Discovered()
	}
	for _, w := range gone {
		if gr := w.resource.GroupResource(); c.gone(gr) {
			s.config.Compare(gr)
		}
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
	if !s.beginSnapshot(ctx, w) {
		return
	}
	for _, i := range w.informers {
		go i.run(ctx)
	}
	if w.waitSynced(ctx) {
		s.log.Info("informer synced", "resource", w.resource.GroupResource().String(), "objects", w.len())
		s.config.Compare(w.resource.GroupResource())
		s.finishSnapshot(ctx, w)
	}
	for _, i := range w.informers {
		<-i.stopped
	}
}

func (w *watched) synced() bool {
	for _, i := range w.informers {
		if !i.synced() {
			return false
		}
	}
	return true
}

func (w *watched) waitSynced(ctx context.Context) bool {
	for _, i := range w.informers {
		select {
		case <-ctx.Done():
			return false
		case <-i.registration.HasSyncedChecker().Done():
		}
	}
	return true
}

func (w *watched) stop() {
	w.cancel()
	<-w.stopped
}

func (s *Set) stopAll() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.watched {
		w.cancel()
	}
	for _, w := range s.watched {
		<-w.stopped
	}
}

// isExpected tells whether a watch ended as watches do: the API server closed it,
// or no longer has the history to go on (410) and the reflector lists again.
func isExpected(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled)
}
