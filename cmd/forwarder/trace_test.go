package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/tail"
	"github.com/kuberelay/kuberelay/internal/trace"
)

func TestIsConsumed(t *testing.T) {
	const subject = "kuberelay.prod.apps.deployments.shop.web"
	for filters, want := range map[string]bool{
		"": true, ">": true, "kuberelay.>": true, subject: true, "kuberelay.*.*.*.*.*": true, "kuberelay.prod.apps.deployments.shop.>": true,
		"kuberelay.other.>": false, "kuberelay.*": false, subject + ".>": false, subject + ".x": false, "kuberelay.prod.*.pods.*.*": false,
		"kuberelay.other.> kuberelay.prod.>": true,
	} {
		if got := isConsumed(strings.Fields(filters), subject); got != want {
			t.Errorf("%q: got %t, want %t", filters, got, want)
		}
	}
}

// TestGuessedResource verifies the resource that trace derives from the command line without an API
// server.
func TestGuessedResource(t *testing.T) {
	for text, want := range map[string]string{
		"pod": "pods", "pods": "pods", "po": "pods", "Pod": "pods", "pods.core": "pods", "deploy.apps": "deployments.apps", "deployments.v1.apps": "deployments.apps",
		"Deployment.apps": "deployments.apps", "ingress.networking.k8s.io": "ingresses.networking.k8s.io", "Widget.example.com": "widgets.example.com", "ep": "endpoints", "endpoints": "endpoints",
	} {
		s, err := tail.ParseSelector(text)
		if got := s.GroupResource().String(); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

// TestAskForwarder verifies that trace requests the object from the forwarder, and rejects the response
// of a forwarder of another cluster.
func TestAskForwarder(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/api/v1/trace" || q.Get("resource") != "deployments.apps" || q.Get("namespace") != "shop" || q.Get("name") != "a&b" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(trace.Forwarder{Role: trace.Leading, Cluster: "prod"})
	}))
	t.Cleanup(server.Close)
	c, err := statusAddress{address: server.URL}.connect(config.Operations{}, defaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	k := event.Key{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "a&b"}
	for cluster, want := range map[string]string{"": "", "prod": "", "staging": "it forwards the cluster prod"} {
		f := askForwarder(t.Context(), c, k, cluster)
		if (f.Role == trace.Leading) != (want == "") || !strings.HasPrefix(f.Error, want) || f.Address != c.at.Host {
			t.Errorf("for the cluster %q: got %+v", cluster, f)
		}
	}
	if f := askForwarder(t.Context(), c, event.Key{}, ""); f.Role != trace.Unreachable || !strings.Contains(f.Error, "400 Bad Request") {
		t.Errorf("got %+v", f)
	}
}

// frozen returns the address of a server that accepts connections and never responds.
func frozen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestTimeUp verifies that no request takes longer than --timeout, and that the error says that the
// server may be slow.
func TestTimeUp(t *testing.T) {
	const timeout, want = 50 * time.Millisecond, "no answer within 50ms; if it is slow, raise --timeout"
	cfg := config.Config{}
	cfg.Event.Sink, cfg.NATS.URLs, cfg.NATS.Stream, cfg.NATS.SubjectPrefix = config.SinkNATS, []string{"nats://" + frozen(t)}, "KUBERELAY", "kuberelay"
	b := readBus(t.Context(), cfg, "prod", event.Key{Resource: "pods", Namespace: "shop", Name: "web"}, timeout)
	if b.bus.State != trace.Unknown || !strings.Contains(b.bus.Error, want) {
		t.Errorf("the bus of trace: got %+v", b.bus)
	}
	f := check.Facts{Settings: cfg}
	observeBus(t.Context(), &f, timeout)
	if f.BusErr == nil || !strings.Contains(f.BusErr.Error(), want) {
		t.Errorf("the bus of check: got %v", f.BusErr)
	}
	c, err := statusAddress{address: frozen(t)}.connect(config.Operations{}, timeout)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.document(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the forwarder: got %v", err)
	}
}
