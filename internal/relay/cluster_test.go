package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"

	"k8s.io/client-go/discovery"
)

// TestAnAPIServerThatStartsIsWaitedFor connects to an API server that denies every request until it
// has loaded its roles, as kube-apiserver does for a moment. An earlier version treated such a
// denial as final, and exited with the code of an invalid configuration.
func TestAnAPIServerThatStartsIsWaitedFor(t *testing.T) {
	const refusals = 3
	for name, c := range map[string]struct {
		configured string
		ready      bool // /readyz succeeds, so the denials are final
		permanent  bool
		want, uid  string
	}{
		"the name is read once it may be":         {want: "uid-of-kube-system", uid: "uid-of-kube-system"},
		"the UID behind a configured name, too":   {configured: "prod", want: "prod", uid: "uid-of-kube-system"},
		"a configured name needs no permission":   {configured: "prod", ready: true, want: "prod"},
		"one that is ready and forbids will stay": {ready: true, permanent: true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.URL.Path == "/readyz" && c.ready:
				case asked.Add(1) <= refusals || c.ready:
					w.WriteHeader(http.StatusForbidden)
					_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
				default:
					_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"uid-of-kube-system"}}`))
				}
			}))
			defer server.Close()
			rc := &rest.Config{Host: server.URL}
			cl := &cluster{name: c.configured, dynamic: dynamic.NewForConfigOrDie(rc), discovery: discoveryClient(t, rc)}
			waiting := ""
			err := cl.awaitAPIServer(t.Context(), server.URL, slog.New(slog.DiscardHandler), func(reason func() error) { waiting = reason().Error() })
			if got := config.IsError(err); got != c.permanent || err != nil && !got {
				t.Errorf("got the error %v, want a permanent one: %v", err, c.permanent)
			}
			if !c.ready && !strings.Contains(waiting, " is not ready: access to the namespace kube-system is denied") {
				t.Errorf("while waiting, the reason is %q", waiting)
			}
			if cl.name != c.want {
				t.Errorf("got the name %q, want %q", cl.name, c.want)
			}
			if cl.uid != c.uid {
				t.Errorf("got the UID %q, want %q", cl.uid, c.uid)
			}
		})
	}
}

// TestAnAPIServerThatDoesNotRespond verifies that a forwarder reports an API server that accepts the
// first request and never answers it, and then tries again. An earlier version waited without a limit,
// and showed only that it was starting.
func TestAnAPIServerThatDoesNotRespond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if requests++; requests == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			body := `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"uid-of-kube-system"}}`
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})}
		requester, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "https://api"}, client)
		if err != nil {
			t.Fatal(err)
		}
		var log, waiting strings.Builder
		cl := &cluster{dynamic: requester}
		err = cl.awaitAPIServer(t.Context(), "https://api", slog.New(slog.NewTextHandler(&log, nil)), func(reason func() error) { waiting.WriteString(reason().Error()) })
		if err != nil || cl.uid != "uid-of-kube-system" {
			t.Errorf("got the UID %q (%v)", cl.uid, err)
		}
		const want = "the API server https://api does not respond: "
		if !strings.Contains(log.String(), want) || !strings.HasPrefix(waiting.String(), want) {
			t.Errorf("the reason is %q, and the log says %s", waiting.String(), log.String())
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWhatAnAPIServerNeverSays verifies that a forwarder with a configured name does not wait
// forever for an API server that denies access to /readyz or has no namespace kube-system.
func TestWhatAnAPIServerNeverSays(t *testing.T) {
	for status, tries := range map[int]int{http.StatusForbidden: maxDenials, http.StatusNotFound: 1} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound"}[status]
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, status)
		}))
		defer server.Close()
		rc := &rest.Config{Host: server.URL}
		for _, configured := range []string{"prod", ""} {
			cl := &cluster{name: configured, dynamic: dynamic.NewForConfigOrDie(rc), discovery: discoveryClient(t, rc)}
			for n := 1; n <= tries; n++ {
				err := cl.identify(t.Context())
				if known := configured != "" && n == tries; known != (err == nil) || cl.name != configured || cl.uid != "" {
					t.Errorf("status %d, %q configured: try %d gave %v, the name %q and the UID %q", status, configured, n, err, cl.name, cl.uid)
				}
			}
		}
	}
}

// TestACredentialPluginThatHangs verifies that a shutdown does not wait for a request that ignores its
// context. A request waits for the credential plugin of its kubeconfig in this way.
func TestACredentialPluginThatHangs(t *testing.T) {
	asked, hangs, connected := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	defer close(hangs)
	kube := &rest.Config{Host: "https://127.0.0.1:1", Transport: controlplanetest.RoundTripper(func(*http.Request) (*http.Response, error) {
		close(asked)
		<-hangs
		return nil, errors.New("no credentials")
	})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := connectCluster(ctx, Config{Kube: kube, Logger: slog.New(slog.DiscardHandler)}, func(func() error) {})
		connected <- err
	}()
	<-asked
	cancel()
	select {
	case err := <-connected:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("still connecting")
	}
}

func discoveryClient(t *testing.T, config *rest.Config) discovery.DiscoveryInterface {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
