package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/status"
)

// TestNamespacesOfAResource verifies that the errors of one reason do not hide those of another,
// and that the number of errors in the document is bounded.
func TestNamespacesOfAResource(t *testing.T) {
	var s status.Resource
	addInformer(&s, health.Status{Namespace: "ok", State: health.Synced, Objects: 4})
	for i := range 10 {
		addInformer(&s, health.Status{Namespace: fmt.Sprintf("denied%d", i), State: health.Degraded, Reason: "forbidden", Failing: errors.New("no right")})
	}
	for i := range 10 {
		addInformer(&s, health.Status{Namespace: fmt.Sprintf("sick%d", i), State: health.Degraded, Reason: "failing", Failing: errors.New("no answer")})
	}
	if s.Namespaces != 21 || s.ForbiddenNamespaces != 10 || len(s.DegradedNamespaces) != 20 || s.Objects != 4 {
		t.Errorf("got %+v", s)
	}
	shown := map[string]int{}
	for _, e := range s.NamespaceErrors {
		shown[e.Reason+" "+e.Message]++
	}
	if len(shown) != 2 || shown["forbidden no right"] != status.MaxNamespaceErrors || shown["failing no answer"] != status.MaxNamespaceErrors {
		t.Errorf("got the errors %v", shown)
	}
}

// TestTheOldestErrorOfAResource verifies that new errors in other namespaces do not hide the oldest error.
// Otherwise a critical finding would become a warning for a minute.
func TestTheOldestErrorOfAResource(t *testing.T) {
	var all health.Report
	for i := range int64(2 * status.MaxNamespaceErrors) {
		all = append(all, health.Status{Namespace: fmt.Sprint(i), State: health.Degraded, Failing: errors.New("no answer"), Since: time.Unix(100-i, 0)})
	}
	oldest := all[len(all)-1]
	s := byResource(all)[schema.GroupResource{}]
	if s == nil || !s.Since.Equal(oldest.Since) || !s.WatchError.Since.Equal(oldest.Since) || s.NamespaceErrors[0].Namespace != oldest.Namespace {
		t.Errorf("got %+v, want the error since %s", s, oldest.Since)
	}
}

// TestUnwatchedDirty verifies that the deletes of a resource that is no longer watched count as unsent. In
// an earlier version, the verdict was that everything is published.
func TestUnwatchedDirty(t *testing.T) {
	dirty := map[schema.GroupResource]int{{Resource: "pods"}: 2, {Group: "example.com", Resource: "widgets"}: 3}
	if n := unwatchedDirty(dirty, []status.Resource{{Name: "pods"}, {Name: "widgets.other.com"}}); n != 3 {
		t.Errorf("got %d, want 3", n)
	}
}

// TestLeaseOfAStartingForwarder verifies that a forwarder that has not read the Lease yet does not
// report that nobody holds it, also after the informers have started.
func TestLeaseOfAStartingForwarder(t *testing.T) {
	settings := config.Config{Leader: config.Leader{Election: true, Namespace: "apps", LeaseName: "kuberelay"}}
	r, err := New(Config{Settings: settings, Identity: "me", Kube: &rest.Config{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	r.informers = informers.New(informers.Config{Standby: true, Ledger: r.ledger, Now: time.Now, Logger: r.Logger, Registerer: prometheus.NewRegistry()})
	for what, why := range map[string]error{"it starts": nil, "the API server is unavailable": errors.New("the API server x is unreachable")} {
		r.state.waitFor(func() error { return why })
		for _, f := range status.Judge(r.Status()).Verdict.Findings {
			if f.Reason == status.NoLeader {
				t.Errorf("%s: %s", what, f.Message)
			}
		}
	}
	e, err := r.newElection()
	if err != nil {
		t.Fatal(err)
	}
	r.state.started(r, e)
	d := status.Empty(time.Now())
	if r.state.describe(&d); d.WaitingFor != status.ForCluster || r.Status().Lease != nil {
		t.Errorf("the lease is not known: waiting for %q, lease %+v", d.WaitingFor, r.Status().Lease)
	}
	if note := r.state.leader(); note != "" {
		t.Errorf("the lease is not known, and the note is %q", note)
	}
}

// TestReadyAfterTheLoad verifies that a forwarder with leader election that begins to lead is not ready
// before it has loaded the checkpoint, although the bus responds.
func TestReadyAfterTheLoad(t *testing.T) {
	r := &Relay{}
	r.state.started(r, nil)
	if err := r.state.bus(); err != nil {
		t.Errorf("as a standby: %v", err)
	}
	r.state.waitFor(func() error { return nil }) // as bus.Open does when the bus is ready
	if err := r.state.bus(); !errors.Is(err, errStarting) {
		t.Errorf("during the load: %v, want %v", err, errStarting)
	}
	failed := errors.New("the load failed")
	r.state.waitFor(func() error { return failed })
	if err := r.state.bus(); !errors.Is(err, failed) {
		t.Errorf("after a failed load: %v, want %v", err, failed)
	}
	r.state.waitFor(nil)
	if err := r.state.bus(); err != nil {
		t.Errorf("after the load: %v", err)
	}
}
