package operations

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestBuildInfo(t *testing.T) {
	r := prometheus.NewRegistry()
	Register(r, "v1.2.3", "abc")
	got := series(scrape(t, r), "kuberelay_build_info")
	want := "commit=abc,goversion=" + runtime.Version() + ",version=v1.2.3"
	if len(got) != 1 || got[want].GetGauge().GetValue() != 1 {
		t.Errorf("got %v, want 1 with %s", got, want)
	}
}

func TestProcessMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	Register(r, "", "")
	families := scrape(t, r)
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "process_open_fds"} {
		if got := series(families, name)[""].GetGauge().GetValue(); got <= 0 {
			t.Errorf("%s is %v, want more than 0", name, got)
		}
	}
}

// TestRESTClientMetrics verifies that several forwarders in one process, each with its own registry,
// all show the process metrics.
func TestRESTClientMetrics(t *testing.T) {
	registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	for _, r := range registries {
		Register(r, "", "")
		Register(r, "", "") // must not panic
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/missing") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"1"},"items":[]}`))
	}))
	defer api.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: api.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	before := requests(t, registries[0])
	for range 3 {
		if _, err := client.Resource(deployments).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{"one", "two"} { // no label may distinguish the namespaces
		if _, err := client.Resource(deployments).Namespace(namespace).Get(t.Context(), "missing", metav1.GetOptions{}); err == nil {
			t.Fatal("got a Deployment that does not exist")
		}
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	unlimited, err := dynamic.NewForConfig(&rest.Config{Host: closed.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unlimited.Resource(deployments).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("a closed server responded")
	}

	want := map[string]float64{
		"requests code=200,method=GET":     3,
		"requests code=404,method=GET":     2,
		"requests code=<error>,method=GET": 1,
		"duration verb=GET":                6,
		"throttled verb=GET":               5,
	}
	for _, r := range registries {
		got := requests(t, r)
		for name := range got {
			if got[name] -= before[name]; got[name] == 0 { // only an earlier test sent such requests
				delete(got, name)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// requests returns the number of requests by metric and labels.
func requests(t *testing.T, r *prometheus.Registry) map[string]float64 {
	families := scrape(t, r)
	got := map[string]float64{}
	for labels, m := range series(families, "rest_client_requests_total") {
		got["requests "+labels] = m.GetCounter().GetValue()
	}
	for labels, m := range series(families, "rest_client_request_duration_seconds") {
		got["duration "+labels] = float64(m.GetHistogram().GetSampleCount())
	}
	for labels, m := range series(families, "rest_client_rate_limiter_duration_seconds") {
		got["throttled "+labels] = float64(m.GetHistogram().GetSampleCount())
	}
	return got
}

func TestANameOfSomethingElsePanics(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "Something else."}))
	defer func() {
		if recover() == nil {
			t.Error("no panic, although another collector has the name of a metric")
		}
	}()
	WorkqueueMetrics(r)
}

// TestRegisterThroughAWrapper verifies that a second registration returns the first metrics even if
// the registry adds a label.
func TestRegisterThroughAWrapper(t *testing.T) {
	r := prometheus.NewRegistry()
	wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"cluster": "one"}, r)
	for range 2 {
		q := newQueue("keys", WorkqueueMetrics(wrapped))
		q.Add("a")
		q.ShutDown()
	}
	got := series(scrape(t, r), "workqueue_adds_total")
	if got["cluster=one,name=keys"].GetCounter().GetValue() != 2 {
		t.Errorf("got %v, want 2 keys of cluster one", slices.Collect(maps.Keys(got)))
	}
}
