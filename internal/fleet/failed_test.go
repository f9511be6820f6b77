package fleet

import (
	"bytes"
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
)

// TestSinceWhenAClusterFails verifies that a cluster whose copy fails again with the same error has
// failed since the first failure.
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
