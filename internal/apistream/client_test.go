package apistream

import (
	"net/url"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// TestARefusedConnectionIsInterruptible verifies that a connection-refused error is replaced only
// where client-go would wait and ignore its context. Elsewhere client-go must see the original
// error, because it would otherwise list again.
func TestARefusedConnectionIsInterruptible(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://example.com", Err: syscall.ECONNREFUSED}
	lists := metav1.ListOptions{SendInitialEvents: new(true)}
	if got := interruptible(lists, refused); utilnet.IsConnectionRefused(got) || got.Error() != refused.Error() {
		t.Errorf("a watch that lists: got %v, want the text only", got)
	}
	if got := interruptible(metav1.ListOptions{}, refused); !utilnet.IsConnectionRefused(got) {
		t.Errorf("a watch that goes on: got %v, want what it was", got)
	}
	busy := apierrors.NewTooManyRequests("busy", 1)
	if got := interruptible(lists, busy); !apierrors.IsTooManyRequests(got) {
		t.Errorf("another failure: got %v, want what it was", got)
	}
}
