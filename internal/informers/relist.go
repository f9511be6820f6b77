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

// relistAfter is the delay between a change of a definition and the new list of its resource. The
// API server also watches definitions. It uses the old definition until it has received the change
// and its current requests have ended, which takes one or two seconds.
const relistAfter = 5 * time.Second

// redefined requests a new list of each resource that the API server may now serve differently.
func (s *Set) redefined(r discovery.Redefinition) {
	s.eachWatched(func(w *watched) {
		if r.Concerns(w.resource) {
			w.requestRelist()
		}
	})
}

func (w *watched) requestRelist() {
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

// listAgain ends the current watch, so that the next watch begins with a list.
func (i *informer) listAgain() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.relist = true
	i.stops++
	i.endWatch()
}

// proveHistory ends the current watch, so that the next watch must prove the history.
func (i *informer) proveHistory() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful = true
	i.stops++
	i.endWatch()
}

// endWatch ends the last watch. The caller holds i.mu.
func (i *informer) endWatch() {
	if i.unwatch != nil {
		i.unwatch()
	}
}

// stopCount returns the number of times that watches were told to end. Call it before preparing a
// watch.
func (i *informer) stopCount() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stops
}

// watching returns the context of a new watch. It releases the context of the previous watch, which
// has ended. If a watch was told to end after [informer.stopCount] returned stops, watching cancels
// the new context, because the caller's checks are outdated.
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

// beginList records the version of the API server before a list. If the version cannot be read, the
// next watch begins with a list again.
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

// versionAge is the maximum age of the API server's known version if the last watch ended at its
// timeout.
const versionAge = 30 * time.Second

// sameContent reports whether a list would return unchanged objects in the same form as the last
// list. ended means that the last watch ended at its timeout.
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

// mayBeRedefined reports whether a definition in a group may have changed without a notification.
// If access to definitions is denied, the end of a watch is the only sign of a change. The group of
// every custom resource contains a dot.
func (s *Set) mayBeRedefined(group string) bool {
	d := s.definitions.Load()
	return d != nil && strings.Contains(group, ".") && !d.HasSynced()
}

// server is the last known version of the API server.
type server struct {
	sync.Mutex
	asked   time.Time // immediately before the request
	version string
}

// serverVersion returns the version of the API server, "" if the API server does not reveal it. It
// reuses the response to a request at since or later, so that many informers cause only one request.
func (s *Set) serverVersion(ctx context.Context, since time.Time) (string, error) {
	s.server.Lock()
	defer s.server.Unlock()
	if s.config.Discovery == nil || s.config.Discovery.RESTClient() == nil {
		return "", nil // a client without a server behind it
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
		return "", fmt.Errorf("get the version of the API server: %w", err)
	}
	s.server.asked, s.server.version = asked, string(text)
	return s.server.version, nil
}
