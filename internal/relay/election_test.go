package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestMayStandAgain verifies that a leader whose bus is gone stands for election again, except
// after a short term, when two forwarders might end each other's terms forever.
func TestMayStandAgain(t *testing.T) {
	r := &Relay{Config: Config{Settings: config.Config{Leader: config.Leader{LeaseDuration: 15 * time.Second}}}}
	gone := fmt.Errorf("another forwarder has taken over: %w", publish.ErrGone)
	for name, c := range map[string]struct {
		err  error
		term time.Duration
		want bool
	}{
		"another has taken over":            {gone, time.Minute, true},
		"another does so all the time":      {gone, time.Second, false},
		"the name is another cluster's":     {errors.Join(publish.ErrGone, &config.Error{Err: errors.New("taken")}), time.Minute, false},
		"it has nothing to do with the bus": {errors.New("no"), time.Minute, false},
	} {
		if got := r.mayRejoinElection(c.err, c.term); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestNobodyLeads verifies that status and /readyz report a missing leader if the Lease names this
// forwarder but the API server fails to write it.
func TestNobodyLeads(t *testing.T) {
	writes := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if q.Method != http.MethodGet {
			_, _ = io.Copy(io.Discard, q.Body) // otherwise the server does not notice that the client disconnects
			select {
			case writes <- struct{}{}:
			case <-q.Context().Done():
			}
			http.Error(w, "no space", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"kuberelay","namespace":"apps","resourceVersion":"1"},
			"spec":{"holderIdentity":"me","leaseDurationSeconds":15}}`)
	}))
	defer server.Close()
	r := &Relay{Config: Config{
		Identity: "me", Kube: &rest.Config{Host: server.URL}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Settings: config.Config{Leader: config.Leader{
			Election: true, Namespace: "apps", LeaseName: "kuberelay", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond,
		}},
	}}
	e, err := r.newElection()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx, func(context.Context) error { return nil })
	}()
	defer func() { end(); <-ended }()
	for range 2 { // the second write begins after the first has failed
		<-writes
	}
	r.state.election = e
	l := r.leaseStatus(e)
	if l.Leading || l.Holder != "" || l.Error != "" || l.Renewed != nil || !strings.Contains(l.RenewError, "renew the lease: ") || !strings.Contains(l.RenewError, "no space") {
		t.Errorf("status: %+v", l)
	}
	if err := r.state.lease(); err == nil || !strings.Contains(err.Error(), "nobody leads: renew the lease: ") {
		t.Errorf("ready: %v", err)
	}
	if note := r.state.leader(); !strings.HasPrefix(note, "standing by, nobody is known to lead: renew the lease: ") {
		t.Errorf("the note is %q", note)
	}
}

// TestLeaseRequestsThatAreLost verifies that a lost request does not stop a candidate, and does not
// cost a leader the Lease.
func TestLeaseRequestsThatAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, lost := []byte(nil), map[string]bool{} // lost has the methods of which a request was lost
		answer := func(q *http.Request) (*http.Response, error) {
			if !lost[q.Method] {
				lost[q.Method] = true
				<-q.Context().Done()
				return nil, q.Context().Err()
			}
			body, status := lease, http.StatusOK
			switch {
			case q.Method != http.MethodGet:
				lease, _ = io.ReadAll(q.Body)
				body = lease
			case lease == nil:
				body, status = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`), http.StatusNotFound
			}
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: q}, nil
		}
		kube := &rest.Config{Host: "https://api", Transport: transport(answer), ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		r := &Relay{Config: Config{
			Identity: "me", Kube: kube, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			Settings: config.Config{Leader: config.Leader{
				Namespace: "apps", LeaseName: "kuberelay", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			}},
		}}
		e, err := r.newElection()
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		terms, ended := 0, make(chan error)
		go func() {
			ended <- e.Run(ctx, func(held context.Context) error {
				terms++
				select {
				case <-held.Done():
				case <-ctx.Done():
				}
				return nil
			})
		}()
		time.Sleep(time.Minute) // on the synctest clock
		synctest.Wait()
		if !e.Standing().Leading || terms != 1 || len(lost) != 3 {
			t.Errorf("the standing is %+v, in term %d, after the loss of %v", e.Standing(), terms, lost)
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
