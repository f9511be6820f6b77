package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
)

// management is the API server of a management cluster, which serves Cluster objects in one version.
type management struct {
	version atomic.Pointer[string]
	upgrade chan struct{} // closed when the watch of the Cluster objects in v1beta1 ends
}

func (m *management) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	version := *m.version.Load()
	group := fmt.Sprintf(`{"groupVersion":"cluster.x-k8s.io/%s","version":%q}`, version, version)
	of := "/apis/cluster.x-k8s.io/" + version + "/namespaces/fleet/clusters"
	switch watches := q.URL.Query().Get("watch") != ""; {
	case q.URL.Path == "/api":
		_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case q.URL.Path == "/apis":
		_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"cluster.x-k8s.io","versions":[`+group+`],"preferredVersion":`+group+`}]}`)
	case q.URL.Path != of && q.URL.Path != "/api/v1/namespaces/fleet/secrets":
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case watches && q.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity) // the client lists instead
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case watches:
		// client-go treats a watch that ends without any event as failed.
		_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"Cluster","apiVersion":"v1","metadata":{"resourceVersion":"1"}}}`+"\n")
		w.(http.Flusher).Flush()
		upgrade := m.upgrade
		if q.URL.Path != of || version != "v1beta1" {
			upgrade = nil
		}
		select {
		case <-upgrade:
		case <-q.Context().Done():
		}
	case strings.HasSuffix(of, q.URL.Path):
		_, _ = io.WriteString(w, `{"kind":"ClusterList","apiVersion":"cluster.x-k8s.io/`+version+`","metadata":{"resourceVersion":"1"},"items":[
			{"kind":"Cluster","apiVersion":"cluster.x-k8s.io/`+version+`","metadata":{"name":"in-`+version+`","namespace":"fleet","resourceVersion":"1"}}]}`)
	default:
		_, _ = io.WriteString(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

// managedBy returns the source of the clusters that a management cluster has.
func managedBy(t *testing.T, server *httptest.Server) Source {
	t.Helper()
	s, err := New(Config{
		Settings: config.Fleet{ClusterAPI: config.List{"fleet"}}, Complete: complete,
		Home: func() (*rest.Config, string, error) { return &rest.Config{Host: server.URL}, "", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClusterAPIVersion verifies that clusters come and go after the management cluster no longer
// serves the version of Cluster API in which they were watched.
func TestClusterAPIVersion(t *testing.T) {
	m := &management{upgrade: make(chan struct{})}
	before, after := "v1beta1", "v1beta2"
	m.version.Store(&before)
	server := httptest.NewServer(m)
	defer server.Close()
	s := managedBy(t, server)
	ctx, end := context.WithCancel(t.Context())
	ended, names := make(chan struct{}), make(chan string)
	go func() {
		defer close(ended)
		s.Watch(ctx, func(all []Cluster) {
			var found []string
			for _, c := range all {
				found = append(found, c.Name)
			}
			select {
			case names <- strings.Join(found, ","):
			case <-ctx.Done():
			}
		}, func(error) {})
	}()
	defer func() { end(); <-ended }()
	await := func(want string) {
		t.Helper()
		for timeout := time.After(time.Minute); ; {
			select {
			case got := <-names:
				if got == want {
					return
				}
			case <-timeout:
				t.Fatalf("the source does not find %s", want)
			}
		}
	}
	await("fleet.in-v1beta1")
	m.version.Store(&after)
	close(m.upgrade)
	await("fleet.in-v1beta2")
}

// TestClusterAPIStops verifies that no request to the management cluster outlives the context. In an earlier
// version, a request to an API server that did not respond delayed a shutdown by up to 32 s.
func TestClusterAPIStops(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	s := managedBy(t, server)
	ctx, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Read(ctx); !errors.Is(err, context.Canceled) || requests.Load() > 0 {
		t.Errorf("got %v and %d requests, want none", err, requests.Load())
	}
}

// TestClusterAPIOutage verifies that an outage of the management cluster that begins after the first
// lists is reported until the cluster responds again. An earlier version did not report such an outage,
// because client-go's reflector retries a refused connection silently.
func TestClusterAPIOutage(t *testing.T) {
	m, version := &management{upgrade: make(chan struct{})}, "v1beta1"
	m.version.Store(&version)
	server := httptest.NewUnstartedServer(m)
	server.Config.SetKeepAlivesEnabled(false) // each request needs a connection
	server.Start()
	s := managedBy(t, server)
	ctx, end := context.WithCancel(t.Context())
	ended, calls := make(chan struct{}), make(chan string)
	call := func(what string) {
		select {
		case calls <- what:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(ended)
		s.Watch(ctx, func(all []Cluster) { call(fmt.Sprintf("found %d", len(all))) }, func(err error) { call(fmt.Sprint("failed: ", err)) })
	}()
	defer func() { end(); <-ended }()
	await := func(want, before string) {
		t.Helper()
		for timeout := time.After(time.Minute); ; {
			select {
			case got := <-calls:
				switch {
				case strings.HasPrefix(got, want):
					return
				case !strings.HasPrefix(got, before):
					t.Fatalf("got %q, want %q", got, want)
				}
			case <-timeout:
				t.Fatalf("no call %q", want)
			}
		}
	}
	const works = "failed: <nil>"
	await("found 1", works)
	_ = server.Listener.Close() // refuses connections
	close(m.upgrade)            // ends a watch as the API server does, without an error
	await("failed: watch clusters of the management cluster: ", "f")
	server.CloseClientConnections()
	server.Close()
	m.upgrade = nil

	listener, err := net.Listen("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	again := &httptest.Server{Listener: listener, Config: &http.Server{Handler: m}} //nolint:gosec // a server for tests needs no timeout
	again.Start()
	defer func() { end(); <-ended; again.Close() }()
	await(works, "f")
	await("found 1", works)
}
