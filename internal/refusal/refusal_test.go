package refusal

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestExplain(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	unread := apierrors.NewGenericServerResponse(http.StatusForbidden, "GET", schema.GroupResource{}, "", "unknown", 0, true)
	for name, c := range map[string]struct {
		err  error
		want string // the beginning of the text
		also string
	}{
		"expired":        {apierrors.NewUnauthorized("Unauthorized"), "401 Unauthorized: Unauthorized", "KUBECONFIG"},
		"forbidden":      {apierrors.NewForbidden(pods, "", errors.New(`user "a" may not`)), `403 Forbidden: pods is forbidden: user "a" may not`, ""},
		"anonymous":      {apierrors.NewForbidden(pods, "", errors.New(`User "system:anonymous" cannot list`)), "403 Forbidden: ", "has no credentials"},
		"unread":         {unread, "403 Forbidden: no reason given", ""},
		"unavailable":    {apierrors.NewServiceUnavailable("starting"), "503 Service Unavailable: starting", ""},
		"wrapped":        {fmt.Errorf("list: %w", apierrors.NewUnauthorized("no")), "401 Unauthorized: list: no", "expired"},
		"no answer":      {errors.New("connection refused"), "connection refused", ""},
		"explained":      {Explain(unread), "403 Forbidden: no reason given", ""},
		"explained, too": {fmt.Errorf("watch: %w", Explain(unread)), "watch: 403 Forbidden: no reason given", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Explain(c.err)
			if !strings.HasPrefix(got.Error(), c.want) || !strings.Contains(got.Error(), c.also) || strings.Contains(got.Error(), "unknown") {
				t.Errorf("got %q, want %q, and %q in it", got, c.want, c.also)
			}
			if !errors.Is(got, c.err) || apierrors.IsForbidden(got) != apierrors.IsForbidden(c.err) || apierrors.IsUnauthorized(got) != apierrors.IsUnauthorized(c.err) {
				t.Error("the error no longer wraps its cause")
			}
			if c.also == "" && strings.Contains(got.Error(), "KUBECONFIG") {
				t.Errorf("%q has the fix for another cause", got)
			}
		})
	}
	if Explain(nil) != nil {
		t.Error("nil is an error")
	}
}
