package informers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuberelay/kuberelay/internal/discovery"
)

// relistAfter is how long after a change of its definition a resource is listed again. The
// API server watches definitions too. It serves the old one until it has seen the change and
// the present requests have ended, which takes a second or two.
const relistAfter = 5 * time.Second

// redefined lists the resources again that may be served in another way.
func (s *Set) redefined(r discovery.Redefinition) {
	s.eachWatched(func(w *watched) {
		if r.Concerns(w.resource) {
			w.redefine()
		}
	})
}

func (w *watched) redefine() {
	select {
	case w.redefined <- struct{}{}:
	default:
	}
}

// relistRedefined lists a resource again after each change of its definition, until ctx ends.
func (s *Set) relistRedefined(ctx context.Context, w *watched) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.redefined:
		}
		timer := time.NewTimer(relistAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		s.log.Info("definition or APIService changed, listing again", "resource", w.groupResource().String())
		for _, i := range w.all() {
			i.listAgain()
		}
	}
}

// listAgain ends the present watch, so that the next one begins with a list.
func (i *informer) listAgain() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.relist = true
	i.stops++
	i.endWatch()
}

// proveHistory ends the present watch, so that the next one needs a proof to continue.
func (i *informer) proveHistory() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful = true
	i.stops++
	i.endWatch()
}

// endWatch is called with i.mu held.
func (i *informer) endWatch() {
	if i.unwatch != nil {
		i.unwatch()
	}
}

// stopCount returns how often watches were told to end. Call it before preparing a watch.
func (i *informer) stopCount() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stops
}

// watching returns the context of a new watch, and releases that of the watch before, which
// has ended. If a watch was told to end after [informer.stopCount] returned stops, the new
// context is canceled: what was checked before the call does not cover the reason.
func (i *informer) watching(ctx context.Context, stops int) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endWatch()
	i.unwatch = cancel
	if i.stops != stops {
		cancel()
	}
	return ctx
}

// beginList records the version of the API server that returns a list. If it is not known,
// the next watch begins with a list again.
func (s *Set) beginList(ctx context.Context, i *informer) {
	i.mu.Lock()
	i.relist = false
	i.mu.Unlock()
	built, err := s.serverVersion(ctx, time.Now().Add(-time.Second))
	if err != nil {
		built = "unknown: " + err.Error()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.built = built
}

// versionAge is how old the version of the API server may be when a watch ended by itself.
const versionAge = 30 * time.Second

// sameContent reports whether a list would return the listed objects in the same form now.
// Ended means that the watch ended by itself, as watches do.
func (s *Set) sameContent(ctx context.Context, i *informer, ended bool) (bool, error) {
	i.mu.Lock()
	relist, built := i.relist, i.built
	i.mu.Unlock()
	if relist || !ended && s.mayBeRedefined(i.resource.Group) {
		return false, nil
	}
	since := time.Now()
	if ended {
		since = since.Add(-versionAge)
	}
	now, err := s.serverVersion(ctx, since)
	return now == built, err
}

// mayBeRedefined reports whether a definition may have changed unseen: if access to
// definitions is denied, the end of a watch is the only sign. The group of every custom
// resource has a dot.
func (s *Set) mayBeRedefined(group string) bool {
	d := s.definitions.Load()
	return d != nil && strings.Contains(group, ".") && !d.HasSynced()
}

// server is the build of the API server.
type server struct {
	sync.Mutex
	asked   time.Time // before the request
	version string
}

// serverVersion returns the build of the API server, "" if it does not tell. An answer to a
// request made at since or later is used again, so that many informers ask once.
func (s *Set) serverVersion(ctx context.Context, since time.Time) (string, error) {
	s.server.Lock()
	defer s.server.Unlock()
	if s.config.Discovery == nil || s.config.Discovery.RESTClient() == nil {
		return "", nil // it has no transport of its own
	}
	if !s.server.asked.Before(since) {
		return s.server.version, nil
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err := s.config.Discovery.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		text = nil
	case err != nil:
		return "", fmt.Errorf("ask the API server for its version: %w", err)
	}
	s.server.asked, s.server.version = asked, string(text)
	return s.server.version, nil
}
