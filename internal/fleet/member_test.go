package fleet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kuberelay/kuberelay/internal/fleet/source"
	"github.com/kuberelay/kuberelay/internal/relay"
)

// TestLogOfTheEnd verifies that the log says that a cluster is no longer copied only if the source has
// dropped the cluster. The end of the process also ends each copy.
func TestLogOfTheEnd(t *testing.T) {
	var log bytes.Buffer
	f := New(Config{Relay: relay.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	dropped, kept := source.Cluster{Name: "dropped", Err: errors.New("no")}, source.Cluster{Name: "kept", Err: errors.New("no")}
	ctx, cancel := context.WithCancel(t.Context())
	f.update(ctx, []source.Cluster{dropped, kept})
	f.update(ctx, []source.Cluster{kept})
	cancel()
	f.running.Wait()
	for text, cluster := range map[string]string{"the cluster is no longer copied": "dropped", "copy ended": "kept"} {
		n := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, text) {
				if n++; !strings.Contains(line, "cluster="+cluster+"\n") {
					t.Errorf("got %q", line)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d lines have %q:\n%s", n, text, &log)
		}
	}
}

// TestAClusterReturns verifies that a cluster is copied again if it has returned to the source before its
// member ends.
func TestAClusterReturns(t *testing.T) {
	f := New(Config{Relay: relay.Config{Logger: slog.New(slog.DiscardHandler)}})
	c := source.Cluster{Name: "prod", Err: errors.New("no")}
	ctx, cancel := context.WithCancel(t.Context())
	f.update(ctx, []source.Cluster{c})
	former := f.members["prod"]
	former.leave() // as if the source had dropped the cluster for a moment
	for now := former; now == former; runtime.Gosched() {
		var err error
		if now, err = f.find("prod"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	f.running.Wait()
	if len(f.members) > 0 {
		t.Errorf("%d members are left", len(f.members))
	}
}

// TestSet verifies which kubeconfig of the source a member uses, and that the status of a running copy
// says if it is not the current one.
func TestSet(t *testing.T) {
	no, other := errors.New("no"), [32]byte{1}
	for name, c := range map[string]struct {
		is, next          source.Cluster
		changed, unusable bool
	}{
		"the same":                {source.Cluster{}, source.Cluster{}, false, false},
		"another":                 {source.Cluster{}, source.Cluster{Digest: other}, true, false},
		"unusable":                {source.Cluster{}, source.Cluster{Err: no}, false, true},
		"usable now":              {source.Cluster{Err: no}, source.Cluster{}, true, false},
		"unusable still":          {source.Cluster{Err: no}, source.Cluster{Err: no}, false, false},
		"unusable in another way": {source.Cluster{Err: no}, source.Cluster{Err: errors.New("not yet")}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(New(Config{Relay: relay.Config{Logger: slog.New(slog.DiscardHandler)}}), c.is, func() {})
			m.set(c.next)
			if got := len(m.changed) > 0; got != c.changed || (m.unusable != nil) != c.unusable {
				t.Errorf("changed: %t, unusable: %v", got, m.unusable)
			}
			var err error
			if m.relay, err = relay.New(relay.Config{Registerer: prometheus.NewRegistry(), Logger: m.log}); err != nil {
				t.Fatal(err)
			}
			if d := m.document(); (d.KubeconfigError != nil) != c.unusable {
				t.Errorf("the status has the error %v", d.KubeconfigError)
			}
			if m.set(source.Cluster{}); m.unusable != nil {
				t.Errorf("after a usable kubeconfig: unusable is %v, want nil", m.unusable)
			}
		})
	}
}

// TestReadyWithoutAnyCopy verifies that a process that copies no cluster is not ready, and for how long it
// waits for a cluster that starts.
func TestReadyWithoutAnyCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Relay: relay.Config{Logger: slog.New(slog.DiscardHandler)}})
		want := func(want string) {
			t.Helper()
			if err := f.check(); text(err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		want("starting")
		failed, starting := newMember(f, source.Cluster{Name: "a"}, func() {}), newMember(f, source.Cluster{Name: "b"}, func() {})
		failed.fail(errors.New("no"))
		f.members, f.reported = map[string]*member{"a": failed, "b": starting}, true
		want("b: starting")
		time.Sleep(startTime + 1)
		want("none of 2 clusters is copied: a: no")
		f.members = nil
		want("")
	})
}

// TestLeaseName verifies that every cluster has its own lease, under a name that is valid for a
// lease.
func TestLeaseName(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"prod", "Prod", "prod_eu", "prod-eu", "PROD_EU", "team.prod"} {
		name := leaseName("kuberelay", cluster)
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			t.Errorf("%s: %s: %v", cluster, name, wrong)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s have the lease %s", cluster, other, name)
		}
		seen[name] = cluster
	}
	if got, want := leaseName("kr-kuberelay", "Mgmt_EU.1"), "kr-kuberelay-mgmt-eu-1-959b274a"; got != want { // the chart computes the same name
		t.Errorf("got %s, want %s", got, want)
	}
	if got := leaseName("kuberelay", "prod"); got != "kuberelay-prod" {
		t.Errorf("got %s", got)
	}
}
