package observe

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/operations/client"
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
	c, err := client.Address{Forwarder: server.URL, Timeout: time.Minute}.Connect(config.Operations{})
	if err != nil {
		t.Fatal(err)
	}
	k := event.Key{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "a&b"}
	for cluster, want := range map[string]string{"": "", "prod": "", "staging": "it forwards the cluster prod"} {
		f := askForwarder(t.Context(), c, k, cluster)
		if (f.Role == trace.Leading) != (want == "") || !strings.HasPrefix(f.Error, want) || f.Address != c.URL().Host {
			t.Errorf("for the cluster %q: got %+v", cluster, f)
		}
	}
	if f := askForwarder(t.Context(), c, event.Key{}, ""); f.Role != trace.Unreachable || !strings.Contains(f.Error, "400 Bad Request") {
		t.Errorf("got %+v", f)
	}
}

// TestTimeUp verifies that no read of the bus waits longer than --timeout, and that the error says that
// the server may be slow.
func TestTimeUp(t *testing.T) {
	const timeout, want = 50 * time.Millisecond, "no response within 50ms; if the server is slow, raise --timeout"
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frozen.Close() })
	cfg := config.Config{}
	cfg.Event.Sink, cfg.NATS.URLs, cfg.NATS.Stream, cfg.NATS.SubjectPrefix = config.SinkNATS, []string{"nats://" + frozen.Addr().String()}, "KUBERELAY", "kuberelay"
	b := readBus(t.Context(), cfg, "prod", event.Key{Resource: "pods", Namespace: "shop", Name: "web"}, timeout)
	if b.bus.State != trace.Unknown || !strings.Contains(b.bus.Error, want) {
		t.Errorf("got %+v", b.bus)
	}
}

// TestBusMisconfigured verifies that a bus that cannot be opened is an error in the document. A reader
// with a nil pointer once made trace panic when it closed the bus.
func TestBusMisconfigured(t *testing.T) {
	cfg := config.Config{}
	cfg.Event.Sink, cfg.NATS.URLs, cfg.NATS.Stream, cfg.NATS.SubjectPrefix = config.SinkNATS, []string{"nats://127.0.0.1:4222"}, "KUBERELAY", "kuberelay"
	cfg.NATS.CredsFile = filepath.Join(t.TempDir(), "missing")
	b := readBus(t.Context(), cfg, "prod", event.Key{Resource: "pods", Namespace: "shop", Name: "web"}, time.Minute)
	defer b.close()
	if b.bus.State != trace.Unknown || b.bus.Error == "" {
		t.Errorf("got %+v", b.bus)
	}
}

// lists is a client whose lists are empty. It records the options of the last one.
type lists struct {
	dynamic.NamespaceableResourceInterface
	last *metav1.ListOptions
}

func (l lists) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface { return l }
func (l lists) Namespace(string) dynamic.ResourceInterface                                  { return l }
func (l lists) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	*l.last = o
	return &unstructured.UnstructuredList{}, nil
}

// TestFieldSelector verifies that the field selector names the object. The name of an RBAC object can
// have a comma, which made the selector invalid before the fix.
func TestFieldSelector(t *testing.T) {
	var last metav1.ListOptions
	c := traced{client: lists{last: &last}, key: event.Key{Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: "shop", Name: "a,b"}}
	s := trace.Selection{Selected: trace.IsSelected}
	c.applyFields(t.Context(), &s, "metadata.namespace=shop")
	selector, err := fields.ParseSelector(last.FieldSelector)
	if err != nil || !selector.Matches(fields.Set{"metadata.name": "a,b", "metadata.namespace": "shop"}) || s.Selected != trace.NotSelected {
		t.Errorf("listed with %q (%v), got %+v", last.FieldSelector, err, s)
	}
}
