package history

import (
	"testing"
	"time"
)

// TestAListIsForAllThatWasAskedBefore verifies that a list satisfies all requests from before its
// start. A request during a list requires another list.
func TestAListIsForAllThatWasAskedBefore(t *testing.T) {
	h := newHistory(nil)
	same := func() bool {
		t.Helper()
		same, err := h.sameContent(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		return same
	}
	ctx := h.Watching(t.Context(), h.Stops())
	if !same() {
		t.Error("a list is due without a request")
	}
	h.ListAgain()
	if same() || ctx.Err() == nil {
		t.Error("the watch continues although a list was requested")
	}
	h.BeginList(t.Context())
	if !same() {
		t.Error("another list is due, although a list began after the request")
	}
	h.ListAgain()
	h.Listed("9") // this list began before the request
	if same() {
		t.Error("a list that began before the request satisfies the request")
	}
}

// TestAWatchIsToldToEndWhileItIsPrepared verifies that a new watch is canceled if a list or a proof
// was requested while the watch was being prepared. An earlier version lost such a request, and the
// watch ran until its timeout.
func TestAWatchIsToldToEndWhileItIsPrepared(t *testing.T) {
	h := newHistory(nil)
	stops := h.Stops()
	if same, err := h.sameContent(t.Context(), true); !same || err != nil {
		t.Fatal(same, err)
	}
	h.ListAgain()
	if h.Watching(t.Context(), stops).Err() == nil {
		t.Error("the watch continues although a list is due")
	}
	stops = h.Stops()
	h.Prove()
	if h.Watching(t.Context(), stops).Err() == nil {
		t.Error("the watch continues although a proof is due")
	}
	h.Opened(time.Now(), nil, stops)
	if !h.shown.doubtful {
		t.Error("opening the watch dropped the request for a proof")
	}
	h.Opened(time.Now(), nil, h.Stops())
	if h.shown.doubtful {
		t.Error("a proof is due again after it was given")
	}
}
