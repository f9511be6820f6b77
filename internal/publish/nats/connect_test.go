package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// TestMisconfigured verifies that Connect immediately returns an error that a retry cannot fix. The
// error names the setting and contains no secret.
func TestMisconfigured(t *testing.T) {
	plain := natstest.Start(t).URL
	noJetStream := natstest.Start(t, func(o *server.Options) { o.JetStream = false }).URL
	guarded := natstest.Start(t, func(o *server.Options) { o.Authorization = secret }).URL
	ca := tlstest.NewCA(t)
	serverCert, _, _ := ca.Issue("server")
	secured := natstest.Start(t, func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, ca.Config(serverCert), 10 }).URL
	_, certFile, _ := ca.Issue("client")
	_, _, otherKey := ca.Issue("other")
	missing := t.TempDir() + "/missing"
	for _, test := range []struct {
		name string
		o    Options
		says []string
	}{
		{"no server", Options{}, []string{"KUBERELAY_NATS_URL"}},
		{"malformed URL", Options{Connection: Connection{URLs: []string{"nats://ho st:" + secret}}}, []string{"KUBERELAY_NATS_URL"}},
		{"URL of another kind", Options{Connection: Connection{URLs: []string{"http://localhost:4222"}}}, []string{"KUBERELAY_NATS_URL", `"http"`}},
		{"URL without host", Options{Connection: Connection{URLs: []string{"nats://"}}}, []string{"KUBERELAY_NATS_URL"}},
		{"password in the URL", Options{Connection: Connection{URLs: []string{"nats://me:" + secret + "@localhost:4222"}}}, []string{"localhost:4222", "KUBERELAY_NATS_PASSWORD_FILE"}},
		{"token in the URL", Options{Connection: Connection{URLs: []string{secret + "@localhost"}}}, []string{"localhost", "KUBERELAY_NATS_TOKEN_FILE"}},
		{"one of several URLs", Options{Connection: Connection{URLs: []string{plain, "x://y"}}}, []string{`"x"`}},
		{"no cluster", Options{Connection: Connection{URLs: []string{plain}, Cluster: "-"}}, []string{"KUBERELAY_CLUSTER_NAME"}},
		{"stream's name", Options{Connection: Connection{URLs: []string{plain}, Stream: "a.b"}}, []string{"KUBERELAY_NATS_STREAM", `"a.b"`}},
		{"prefix of two tokens", Options{Connection: Connection{URLs: []string{plain}, SubjectPrefix: "a.b"}}, []string{"KUBERELAY_NATS_SUBJECT_PREFIX", `"a.b"`}},
		{"no history", Options{Connection: Connection{URLs: []string{plain}}, History: -1}, []string{"KUBERELAY_NATS_HISTORY", "-1"}},
		{"replicas", Options{Connection: Connection{URLs: []string{plain}}, Replicas: 7}, []string{"KUBERELAY_NATS_REPLICAS", "7"}},
		{"replicas without a cluster", Options{Connection: Connection{URLs: []string{plain}}, Replicas: 3}, []string{"KUBERELAY_NATS_REPLICAS", "3"}},
		{"content mode", Options{Connection: Connection{URLs: []string{plain}}, ContentMode: "xml"}, []string{"KUBERELAY_CONTENT_MODE", `"xml"`}},
		{"password file", Options{Connection: Connection{URLs: []string{plain}, User: "me", PasswordFile: missing}}, []string{"KUBERELAY_NATS_PASSWORD_FILE", missing}},
		{"empty password file", Options{Connection: Connection{URLs: []string{plain}, User: "me", PasswordFile: file(t, "\n")}}, []string{"KUBERELAY_NATS_PASSWORD_FILE", "empty"}},
		{"user without password", Options{Connection: Connection{URLs: []string{plain}, User: "me"}}, []string{"KUBERELAY_NATS_USER", "KUBERELAY_NATS_PASSWORD_FILE"}},
		{"token file", Options{Connection: Connection{URLs: []string{plain}, TokenFile: missing}}, []string{"KUBERELAY_NATS_TOKEN_FILE", missing}},
		{"creds file", Options{Connection: Connection{URLs: []string{plain}, CredsFile: missing}}, []string{"KUBERELAY_NATS_CREDS_FILE", missing}},
		{"creds file of something else", Options{Connection: Connection{URLs: []string{plain}, CredsFile: file(t, secret)}}, []string{"KUBERELAY_NATS_CREDS_FILE"}},
		{"nkey file", Options{Connection: Connection{URLs: []string{plain}, NkeyFile: missing}}, []string{"KUBERELAY_NATS_NKEY_FILE", missing}},
		{"nkey file of something else", Options{Connection: Connection{URLs: []string{plain}, NkeyFile: file(t, secret)}}, []string{"KUBERELAY_NATS_NKEY_FILE"}},
		{"two kinds of credentials", Options{Connection: Connection{URLs: []string{plain}, User: "me", PasswordFile: file(t, secret), TokenFile: file(t, secret)}}, []string{"more than one"}},
		{"CA file", Options{Connection: Connection{URLs: []string{plain}, CAFile: missing}}, []string{"KUBERELAY_NATS_TLS_CA_FILE", missing}},
		{"CA file of something else", Options{Connection: Connection{URLs: []string{plain}, CAFile: file(t, secret)}}, []string{"KUBERELAY_NATS_TLS_CA_FILE", "PEM"}},
		{"certificate without key", Options{Connection: Connection{URLs: []string{plain}, CertFile: certFile}}, []string{"KUBERELAY_NATS_TLS_KEY_FILE"}},
		{"certificate and another's key", Options{Connection: Connection{URLs: []string{plain}, CertFile: certFile, KeyFile: otherKey}}, []string{"KUBERELAY_NATS_TLS_CERT_FILE", certFile}},
		{"TLS wanted, none there", Options{Connection: Connection{URLs: []string{"tls://" + strings.TrimPrefix(plain, "nats://")}}}, []string{"secure"}},
		{"no credentials", Options{Connection: Connection{URLs: []string{guarded}}}, []string{"none are set", "KUBERELAY_NATS_TOKEN_FILE"}},
		{"other credentials", Options{Connection: Connection{URLs: []string{guarded}, TokenFile: file(t, "other")}}, []string{"rejects the credentials in KUBERELAY_NATS_TOKEN_FILE"}},
		{"unknown authority", Options{Connection: Connection{URLs: []string{secured}, CAFile: tlstest.NewCA(t).File}}, []string{"unknown authority", "KUBERELAY_NATS_TLS_CA_FILE"}},
		{"no JetStream", Options{Connection: Connection{URLs: []string{noJetStream}}}, []string{"JetStream is not enabled"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.o.Cluster == "" {
				test.o.Cluster = "c"
			}
			test.o.Cluster = strings.TrimPrefix(test.o.Cluster, "-")
			err := connectError(t, test.o)
			if !errors.Is(err, ErrMisconfigured) {
				t.Fatalf("error is %v, want ErrMisconfigured", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("error has the secret in it: %v", err)
			}
		})
	}
}

// TestUnreachable verifies that the bus waits for a server that is not running yet.
func TestUnreachable(t *testing.T) {
	s := natstest.Start(t)
	s.Stop()
	var log strings.Builder
	registry := prometheus.NewRegistry()
	bus := open(t, Options{
		Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, Registerer: registry, Logger: slog.New(slog.NewTextHandler(&locked{w: &log}, nil))},
	})
	if err := bus.Ready(); err == nil || errors.Is(err, ErrMisconfigured) {
		t.Errorf("Ready returned %v for an unreachable server", err)
	}
	if _, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0)); err == nil {
		t.Error("published to an unreachable server")
	}
	if err := bus.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); err == nil {
		t.Error("loaded from an unreachable server")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bus.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait returned %v when its context ended", err)
	}
	poll.Holds(t, "Ready says why the bus is not ready", func() bool { return strings.Contains(fmt.Sprint(bus.Ready()), s.Addr()) })

	s.Restart()
	waitReady(t, bus)
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	poll.Holds(t, "kuberelay_nats_connected is 1", func() bool { return gathered(t, registry, "kuberelay_nats_connected") == 1 })
	bus.Close()
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("no warning in the log: %s", log.String())
	}
}

// TestDomainThatDoesNotAnswer verifies that the bus waits for a JetStream domain that the leaf node
// can't reach yet.
func TestDomainThatDoesNotAnswer(t *testing.T) {
	bus := open(t, Options{Connection: Connection{URLs: []string{natstest.Start(t).URL}, Cluster: publishtest.Cluster, Domain: "hub"}})
	poll.Holds(t, "Ready says why the bus is not ready", func() bool { return strings.Contains(fmt.Sprint(bus.Ready()), "KUBERELAY_NATS_JETSTREAM_DOMAIN") })
	if err := bus.Ready(); errors.Is(err, ErrMisconfigured) {
		t.Errorf("Ready returned %v, which a retry can fix", err)
	}
}

// TestRefusedLater verifies that rejected credentials end the wait, even if the server was
// unreachable at first.
func TestRefusedLater(t *testing.T) {
	s := natstest.Start(t, func(o *server.Options) { o.Authorization = "token" })
	s.Stop()
	bus := open(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, TokenFile: file(t, "wrong")}})
	s.Restart()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := bus.Wait(ctx); !errors.Is(err, ErrMisconfigured) {
		t.Errorf("wait gives %v, want ErrMisconfigured", err)
	}
}

// TestSeveralServers verifies that the bus connects although one server is unreachable.
func TestSeveralServers(t *testing.T) {
	s := natstest.Start(t)
	dead := fmt.Sprintf("nats://127.0.0.1:%d", natstest.FreePort(t))
	bus := connect(t, Options{Connection: Connection{URLs: []string{dead, s.URL}, Cluster: publishtest.Cluster}})
	if err := bus.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	s := natstest.Start(t)
	registry := prometheus.NewRegistry()
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, Registerer: registry}})
	m := publishtest.Object{Name: "web", Version: 1}.Message(t, 0)
	publishOK(t, bus, m)
	publishOK(t, bus, m)
	if _, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 2}.Message(t, 0)); err == nil {
		t.Error("no conflict")
	}
	for result, want := range map[publish.Result]float64{publish.ResultStored: 1, publish.ResultAlreadyStored: 1, publish.ResultConflict: 1, publish.ResultTimeout: 0} {
		if got := gathered(t, registry, "kuberelay_nats_publishes_total", string(result)); got != want {
			t.Errorf("%v publishes with result %s, want %v", got, result, want)
		}
	}
	s.Restart()
	waitReconnected(t, bus)
	for name, want := range map[string]float64{
		"kuberelay_nats_connected": 1, "kuberelay_nats_in_flight": 0,
		"kuberelay_nats_reads_total": 2, // each rejected publish reads the last message
	} {
		poll.Holds(t, fmt.Sprintf("%s is %v", name, want), func() bool { return gathered(t, registry, name) == want })
	}
	poll.Holds(t, "each lost connection is replaced", func() bool {
		lost, _, err := bus.conn.State()
		return err == nil && gathered(t, registry, "kuberelay_nats_reconnects_total") == float64(lost)
	})
	if got := gathered(t, registry, "kuberelay_nats_ack_duration_seconds"); got != 1 {
		t.Errorf("%v acknowledgements were timed, want 1", got)
	}
}

// gathered returns the value of the metric with the given label values. For a histogram, it returns
// the count.
func gathered(t testing.TB, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("no metric %s %v", name, labels)
	return 0
}
