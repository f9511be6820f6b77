package apistream

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// TestARefusedConnectionIsInterruptible verifies that a connection-refused error is replaced only
// where client-go would wait and ignore its context. Elsewhere client-go must see the original
// error, because it would otherwise list again.
func TestARefusedConnectionIsInterruptible(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://example.com", Err: syscall.ECONNREFUSED}
	lists := metav1.ListOptions{SendInitialEvents: new(true)}
	if got := interruptible(lists, refused); utilnet.IsConnectionRefused(got) || got.Error() != refused.Error() {
		t.Errorf("a watch that begins with a list: got %v, want another error with the same text", got)
	}
	if got := interruptible(metav1.ListOptions{}, refused); !utilnet.IsConnectionRefused(got) {
		t.Errorf("a resumed watch: got %v, want the original error", got)
	}
	busy := apierrors.NewTooManyRequests("busy", 1)
	if got := interruptible(lists, busy); !apierrors.IsTooManyRequests(got) {
		t.Errorf("another error: got %v, want the original error", got)
	}
}

// TestWhenAWatchWasAsked verifies that a watch counts as requested when its successful request was sent, not
// when an earlier, failed request was sent. The API server measures the timeout of the watch from the
// successful request. In an earlier version, a watch that ended early could seem to end at its timeout after
// such a failure.
func TestWhenAWatchWasAsked(t *testing.T) {
	var refused time.Time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refused.IsZero() {
			refused = time.Now()
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), Resource{}, metav1.ListOptions{}, takeText, func(asked time.Time) {
		if !asked.After(refused) {
			t.Errorf("the request counts as sent %s before the refusal of an earlier one", refused.Sub(asked))
		}
	}, func(watch.Event) {})
	if err != nil || refused.IsZero() {
		t.Fatalf("refused at %s: %v", refused, err)
	}
	w.Stop()
	for range w.ResultChan() {
	}
}
