package history

import (
	"context"
	"time"
)

// ListAgain ends the current watch, so that the next watch begins with a list.
func (h *History) ListAgain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relist = true
	h.stops++
	h.unwatch()
}

// Prove ends the current watch. Before the next watch, [History.Continue] must prove that the history
// was not rolled back.
func (h *History) Prove() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown.doubtful = true
	h.stops++
	h.unwatch()
}

// Stops returns the number of times that watches were told to end. Call it before preparing a
// watch.
func (h *History) Stops() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stops
}

// Watching returns the context of a new watch. It releases the context of the previous watch, which
// has ended. If a watch was told to end after [History.Stops] returned stops, Watching cancels
// the new context, because the caller's checks are outdated. Call Watching directly before the request.
func (h *History) Watching(ctx context.Context, stops int) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unwatch()
	h.unwatch = cancel
	if h.stops != stops {
		cancel()
	}
	return ctx
}

// BeginList records the version of the API server before a list. If the version cannot be read, the
// next watch begins with a list again.
func (h *History) BeginList(ctx context.Context) {
	h.mu.Lock()
	h.relist = false
	h.mu.Unlock()
	built, err := h.config.Server.versionSince(ctx, time.Now().Add(-time.Second))
	if err != nil {
		built = "unknown: " + err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.built = built
}

// versionAge is the maximum age of the API server's known version if the last watch ended at its
// timeout.
const versionAge = 30 * time.Second

// sameContent reports whether a list would return unchanged objects in the same form as the last
// list. ended means that the last watch ended at its timeout.
func (h *History) sameContent(ctx context.Context, ended bool) (bool, error) {
	h.mu.Lock()
	relist, built := h.relist, h.built
	h.mu.Unlock()
	if relist || !ended && h.config.MayBeRedefined() {
		return false, nil
	}
	since := time.Now()
	if ended {
		since = since.Add(-versionAge)
	}
	now, err := h.config.Server.versionSince(ctx, since)
	return now == built, err
}
