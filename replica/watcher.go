package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// watcher is a [watch.Interface] for a feed. Its goroutine ends with the watch.
type watcher struct {
	feed    feed
	options metav1.ListOptions
	result  chan watch.Event
	cancel  func()
	stopped <-chan struct{}
}

var _ watch.Interface = (*watcher)(nil)

// Stop ends the watch. It is idempotent.
func (w *watcher) Stop() { w.cancel() }

// ResultChan returns the channel of events. The channel is closed when the watch has ended.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

func (w *watcher) run(ctx context.Context) {
	defer close(w.result)
	defer w.cancel()
	timed, cancel := ctx, func() {}
	if s := w.options.TimeoutSeconds; s != nil && *s > 0 {
		timed, cancel = context.WithTimeout(ctx, time.Duration(*s)*time.Second)
	}
	defer cancel()
	err := w.feed.run(timed)
	switch {
	case ctx.Err() != nil:
	case timed.Err() != nil:
		w.end()
	default:
		_ = w.send(watch.Event{Type: watch.Error, Object: w.status(err)}) // fails only if the watch is stopped
	}
}

// end ends a watch that timed out. It sends a bookmark, from which another watch can continue.
func (w *watcher) end() {
	if w.feed.synced && w.options.AllowWatchBookmarks && w.bookmark(w.feed.version(), nil) == nil {
		w.feed.lw.leave(w.feed.place)
	}
}

func (w *watcher) status(err error) *metav1.Status {
	err = fmt.Errorf("watch %s on the bus: %w", w.feed.lw.gvr.GroupResource(), err)
	if errors.Is(err, publish.ErrLost) {
		status := apierrors.NewResourceExpired(err.Error()).Status()
		return &status
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
}

// start sends the current state.
func (w *watcher) start() error {
	for _, object := range w.feed.table.objects() {
		if err := w.send(watch.Event{Type: watch.Added, Object: object}); err != nil {
			return err
		}
	}
	if s := w.options.SendInitialEvents; s != nil && *s {
		return w.bookmark(w.feed.version(), map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return nil
}

// resolved sends a bookmark with the consistency point that the watch has reached, if any. A bookmark
// must follow each event, because a store has the version of the last event or bookmark.
func (w *watcher) resolved() error {
	point, ok := w.feed.point()
	if !ok || !w.options.AllowWatchBookmarks {
		return nil
	}
	return w.bookmark(point.encode(), nil)
}

func (w *watcher) bookmark(version string, annotations map[string]string) error {
	object := w.feed.decoder.empty()
	m := metaOf(object)
	m.SetResourceVersion(version)
	m.SetAnnotations(annotations)
	return w.send(watch.Event{Type: watch.Bookmark, Object: object})
}

func (w *watcher) send(e watch.Event) error {
	select {
	case w.result <- e:
		return nil
	case <-w.stopped:
		return context.Canceled
	}
}
