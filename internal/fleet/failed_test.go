package fleet

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/fleet/source"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/status"
)

// TestSinceWhenAClusterFails verifies that the start time of a failure stays the same if the copy of the
// cluster fails again with the same error.
func TestSinceWhenAClusterFails(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	defer server.Close()
	f := New(Config{Relay: relay.Config{
		Settings: config.Config{Event: config.Event{Sink: config.SinkStdout}}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}})
	m := newMember(f, source.Cluster{Name: "prod", Kube: &rest.Config{Host: server.URL}}, func() {})
	failure := func() (string, time.Time) {
		err, changed := m.runOnce(t.Context())
		if err == nil || changed {
			t.Fatalf("got %v, changed is %v", err, changed)
		}
		m.fail(err)
		_, failed, since := m.state()
		return text(failed), since
	}
	first, since := failure()
	if again, at := failure(); again != first || !at.Equal(since) {
		t.Errorf("%q since %s, and then %q since %s", first, since, again, at)
	}
}

// TestAnotherKubeconfig verifies that the end of a copy whose kubeconfig has changed is not logged as an
// error. In an earlier version, it always was.
func TestAnotherKubeconfig(t *testing.T) {
	var log bytes.Buffer
	requested := make(chan struct{}, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusInternalServerError)
		select {
		case requested <- struct{}{}:
		default:
		}
	}))
	defer server.Close()
	f := New(Config{Relay: relay.Config{
		Settings: config.Config{Event: config.Event{Sink: config.SinkStdout}}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
	}})
	m := newMember(f, source.Cluster{Name: "prod", Kube: &rest.Config{Host: server.URL}}, func() {})
	go func() {
		<-requested
		m.set(source.Cluster{Name: "prod", Kube: &rest.Config{Host: server.URL}, Digest: [32]byte{1}})
	}()
	if err, changed := m.runOnce(t.Context()); err != nil || !changed {
		t.Errorf("got %v, changed is %t", err, changed)
	}
	if strings.Contains(log.String(), "ended with an error") {
		t.Errorf("the log has\n%s", &log)
	}
}

// TestTheSourceFails verifies that the metrics and the status show an error of the source until the
// source works again.
func TestTheSourceFails(t *testing.T) {
	f := New(Config{Relay: relay.Config{Logger: slog.New(slog.DiscardHandler)}, Metrics: prometheus.NewRegistry()})
	want := func(up float64, level status.Level) {
		t.Helper()
		all, err := f.Gather()
		if err != nil || len(all) != 1 || all[0].GetName() != "kuberelay_cluster_source_up" || all[0].GetMetric()[0].GetGauge().GetValue() != up {
			t.Errorf("got %v and %v, want %v", all, err, up)
		}
		if v := status.Judge(f.Status()).Verdict; v.Level != level {
			t.Errorf("got %+v, want %s", v, level)
		}
	}
	want(0, status.Warning) // it starts
	f.noteFailure(errors.New("no"))
	want(0, status.Critical)
	f.noteFailure(nil)
	f.update(t.Context(), nil)
	want(1, status.OK)
	f.noteFailure(errors.New("no"))
	want(0, status.Warning)
	f.noteFailure(nil)
	want(1, status.OK)
}
