package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/page"
	"github.com/kuberelay/kuberelay/internal/status"
	"github.com/kuberelay/kuberelay/test/lab/browsertest"
)

// TestStatusPageDocument: the page shows what the forwarder of TestStatusPage doesn't have: long work, failing resources,
// a standby, and no names.
func TestStatusPageDocument(t *testing.T) {
	var mu sync.Mutex
	number := func(n int64) *int64 { return &n }
	clean := 0
	old := time.Now().Add(-26*time.Hour - 30*time.Minute)
	d := status.Document{
		Cluster: "prod-eu1", Instance: "kuberelay-0_x", Version: "v1.2.3", Selectors: []string{}, Discovery: []status.DiscoveryError{}, Unmatched: []status.Unmatched{},
		Bus:   status.Bus{Sink: "kafka", State: status.BusReady},
		Lease: &status.Lease{Name: "kuberelay/kuberelay", Leading: true, Holder: "kuberelay-0"},
		Resources: []status.Resource{
			{Name: "configmaps", State: "synced", Dirty: &clean, PublishError: &status.Error{Message: "too large", Since: old}},
			{Name: "nodes", State: "synced", Dirty: &clean},
			{Name: "pods", State: "starting", Dirty: &clean},
			{Name: "secrets", State: "degraded", Reason: "forbidden", Since: &old, Dirty: &clean, WatchError: &status.Error{Message: "secrets is forbidden", Since: old}},
		},
		ConsistencyPointsOff: true,
		Work:                 []status.Work{{Work: "first_sync", Unit: "objects", Done: 1200, Total: number(20000), PerSecond: 310, SecondsLeft: number(61)}},
	}
	recent := new(page.Recent)
	recent.Add(event.Key{Resource: "secrets", Namespace: "shop", Name: "password"}, event.Created, "7", old, old)
	served := page.New(page.Config{Recent: recent, Done: t.Context().Done(), Status: func() status.Document {
		mu.Lock()
		defer mu.Unlock()
		now := d
		now.Time = time.Now().UTC()
		return status.Judge(now)
	}})
	mux := http.NewServeMux()
	mux.Handle("/", served)
	mux.HandleFunc("/api/v1/status/stream", func(w http.ResponseWriter, r *http.Request) { served.Stream(w, r, false) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p := openPage(t, strings.TrimPrefix(server.URL, "http://"))
	p.says("#level", "WARNING · 3 findings")
	if got, want := p.Text("#summary"), "Access denied to 1 of 4 resources for 26h"; got != want {
		t.Errorf("the headline is %q, want %q", got, want)
	}
	p.says("#error", "Access denied to 1 of 4 resources: secrets (secrets is forbidden)")
	p.says("#findings", "Objects of 1 resource cannot be published for 26h")
	p.says("#findings", "Objects of 1 resource cannot be published, configmaps for 26h: too large")
	p.says("#instance", "kuberelay-0_x")
	p.says("#copy", "consistency points are off")
	objects := `[...document.querySelectorAll("#resources [data-label=Objects]")].map((e) => e.innerText).join()`
	if got := browsertest.Eval[string](p.Tab, objects); got != "–,0,–,0" {
		t.Errorf("the objects are %q: a resource that was never listed has a dash", got)
	}
	p.says("#work", "First sync: 1,200 of 20,000 objects, 310/s, 61s left")
	want := "secrets|Not watched for 26h: secrets is forbidden|configmaps|Not published for 26h: too large|pods|nodes"
	if got := browsertest.Eval[string](p.Tab, `[...document.querySelectorAll("#resources tr")].map((e) => e.firstChild.innerText).join("|")`); got != want {
		t.Errorf("the rows are %q, want %q", got, want)
	}
	p.says("#no-events", "KUBERELAY_METRICS_AUTH=true")
	if text := p.Text("body"); strings.Contains(text, "password") {
		t.Errorf("a caller without the right sees a name: %s", text)
	}
	p.contrast("failing")
	p.Screen(375, 812, true)
	p.fits("a phone")
	p.Dark(true)
	p.contrast("failing, dark")

	mu.Lock()
	// The resources are new. The page's handler still encodes the former ones.
	d.Resources, d.Work, d.Bus.State = []status.Resource{{Name: "nodes", State: "synced"}}, nil, status.BusUnused
	d.Lease = &status.Lease{Name: "kuberelay/kuberelay", Holder: "kuberelay-1"}
	mu.Unlock()
	p.says("#summary", "Standing by, the leader is kuberelay-1")
	p.says("#role", "standby")
	p.Await("there is no long work", `document.querySelector("#work").hidden`)
	p.clean()
}
