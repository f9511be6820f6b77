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

// TestStatusPageDocument_Slow verifies how the page shows states that the forwarder of TestStatusPage_Slow
// doesn't have: long work, failing resources, a standby, and a document without names.
func TestStatusPageDocument_Slow(t *testing.T) {
	var mu sync.Mutex
	number := func(n int64) *int64 { return &n }
	clean := 0
	old := time.Now().Add(-26*time.Hour - 30*time.Minute)
	d := status.Document{
		Cluster: "prod-eu1", Instance: "kuberelay-6d9f7c5b8-x2x4q_a1", Version: "v1.2.3", Selectors: []string{}, Discovery: []status.DiscoveryError{}, Unmatched: []status.Unmatched{},
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
	served := page.New(page.Config{Done: t.Context().Done(), View: func(string) (status.Document, *page.Recent) {
		mu.Lock()
		defer mu.Unlock()
		now := d
		now.Time = time.Now().UTC()
		return status.Judge(now), recent
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
	p.says("#instance", "kuberelay-6d9f7c5b8-x2x4q_a1")
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
	// Replace the slice of resources: the page's handler may still encode the former one.
	d.Resources, d.Work, d.Bus.State = []status.Resource{{Name: "nodes", State: "synced"}}, nil, status.BusUnused
	d.Lease = &status.Lease{Name: "kuberelay/kuberelay", Holder: "kuberelay-1"}
	mu.Unlock()
	p.says("#summary", "Standing by, the leader is kuberelay-1")
	p.says("#role", "standby")
	p.Await("there is no long work", `document.querySelector("#work").hidden`)

	mu.Lock()
	d.Lease, d.WaitingFor = nil, status.ForCluster // the election doesn't exist yet
	mu.Unlock()
	p.says("#role", "starting")
	p.says("#lease", "not known yet")
	p.clean()
}

// TestStatusPageClusters verifies the page of a forwarder of several clusters. It has a row for
// each cluster, with failing clusters first. Each row links to the page of one cluster, and that
// page links back.
func TestStatusPageClusters(t *testing.T) {
	clean := 0
	member := func(name string) status.Document {
		d := status.Document{
			Time: time.Now().UTC(), Cluster: name, Version: "v1.2.3", Selectors: []string{}, Discovery: []status.DiscoveryError{}, Unmatched: []status.Unmatched{},
			Work: []status.Work{}, Resources: []status.Resource{{Name: "nodes", State: "synced", Objects: 3, Dirty: &clean}}, Bus: status.Bus{Sink: "nats", State: status.BusReady},
			ConsistencyPointsOff: true,
		}
		if name == "shop.broken" {
			d.Resources, d.WaitingFor, d.Bus.State = []status.Resource{}, status.ForCluster, status.BusUnused
			d.Failed = &status.Error{Message: "its file is not a kubeconfig", Since: d.Time.Add(-26 * time.Hour)}
		}
		return d
	}
	recents := new(page.Recents)
	recents.Of("shop.a").Add(event.Key{Resource: "nodes", Name: "node-a"}, event.Created, "7", time.Now(), time.Now())
	served := page.New(page.Config{
		Several: true, Done: t.Context().Done(),
		View: func(name string) (status.Document, *page.Recent) {
			d := member(name)
			if name == "" {
				d.Resources, d.Clusters = []status.Resource{}, []status.Document{member("shop.a"), member("shop.broken"), member("shop.c")}
				return status.Judge(d), nil
			}
			return status.Judge(d), recents.Of(name)
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/", served)
	mux.HandleFunc("/api/v1/status/stream", func(w http.ResponseWriter, r *http.Request) { served.Stream(w, r, true) })
	var traced sync.Map
	mux.HandleFunc("/api/v1/trace", func(w http.ResponseWriter, r *http.Request) {
		traced.Store(r.URL.Query().Get("cluster"), true)
		_, _ = w.Write([]byte(`{"role":"leading","verdict":{"exitCode":0,"summary":"published"}}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p := openPage(t, strings.TrimPrefix(server.URL, "http://"))
	p.says("#level", "CRITICAL")
	p.says("#cluster", "all clusters")
	rows := `[...document.querySelectorAll("#clusters tr")].map((e) => [...e.children].map((c) => c.innerText).join(" ")).join("|")`
	want := "shop.broken critical 0 0 – – unused|The cluster cannot be copied|shop.a ok 1 3 0 – ready|shop.c ok 1 3 0 – ready"
	p.Await("there are rows", `document.querySelectorAll("#clusters tr").length === 4`)
	if got := browsertest.Eval[string](p.Tab, rows); got != want {
		t.Errorf("the rows are %q, want %q", got, want)
	}
	if browsertest.Eval[bool](p.Tab, `[...document.querySelectorAll(".one")].some((e) => e.checkVisibility())`) {
		t.Error("parts of the page of one cluster are visible")
	}
	p.contrast("clusters")
	p.Screen(375, 812, true)
	p.fits("a phone")
	p.Dark(true)
	p.contrast("clusters, dark")
	p.Screen(1280, 900, false)

	browsertest.Eval[bool](p.Tab, `(() => { [...document.querySelectorAll("#clusters a")].find((e) => e.innerText === "shop.a").click(); return true; })()`)
	p.says("#cluster", "shop.a")
	p.says("#level", "OK")
	p.says("#resources", "nodes")
	p.says("#events", "node-a")
	browsertest.Eval[bool](p.Tab, `(() => { document.querySelector("#events button").click(); return true; })()`)
	p.says("#traced", "forwarder trace nodes/node-a --cluster=shop.a")
	if _, ok := traced.Load("shop.a"); !ok {
		t.Error("the trace does not name the cluster")
	}
	browsertest.Eval[bool](p.Tab, `(() => { document.querySelector("#all-clusters").click(); return true; })()`)
	p.says("#cluster", "all clusters")
	p.says("#clusters", "shop.broken")
	p.clean()
}
