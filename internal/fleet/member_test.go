package fleet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

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
