package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// TestTailNoFollow verifies that with --no-follow, tail exits at the current end of the bus, even if no
// event matches.
func TestTailNoFollow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		bus.some()
		for _, tc := range []struct{ args, want string }{
			{"--last -n=default,shop", "created deployments.apps shop/cart v2 watch\ndeleted pods default/web-1 v5 watch\n"},
			{"--from-start --resource=deployments.apps -n=shop", "created deployments.apps shop/cart v2 watch\n"},
			{"--since=1h -n=default", "snapshot pods default/web-1 v1 watch\nupdated pods default/web-1 v3 watch\ndeleted pods default/web-1 v5 watch\n"},
			{"--from-start --resource=pods -n=shop", ""},
			{"--from-start -n=default --count=1", "snapshot pods default/web-1 v1 watch\n"},
			{"--from-start --diff -n=shop", "created deployments.apps shop/cart v2 watch\n"},
		} {
			stdout, stderr := runTail(t, 0, append(strings.Fields(tc.args), "--no-follow")...)
			if got := squeeze(stdout); got != tc.want || stderr != "" {
				t.Errorf("%s: got %q, want %q; stderr %q", tc.args, got, tc.want, stderr)
			}
		}
	})
}

// TestTailNoFollowWithoutBus verifies that with --no-follow, tail does not wait for a missing stream or
// an unreachable server.
func TestTailNoFollowWithoutBus(t *testing.T) {
	ns := natstest.Start(t)
	t.Setenv("KUBERELAY_NATS_URL", ns.URL)
	if _, stderr := runTail(t, exitFailure, "--last", "--no-follow"); !strings.Contains(stderr, "check KUBERELAY_NATS_STREAM") {
		t.Errorf("without a stream: stderr %q", stderr)
	}
	ns.Stop()
	if _, stderr := runTail(t, exitFailure, "--last", "--no-follow"); !strings.Contains(stderr, "check KUBERELAY_NATS_URL") {
		t.Errorf("without a server: stderr %q", stderr)
	}
}

// TestTailAbsent verifies that tail names the selected resources, namespaces and clusters for which the
// bus has no event, while it waits for events.
func TestTailAbsent(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		p := startTail(t, "--from-start", "--resource=pods")
		p.stderr.want(`has no events of the resource "pods" yet`)
		bus.some()
		p.stdout.want("snapshot started pods", "snapshot pods default/web-1 v1 watch")
		for args, want := range map[string]string{
			"--resource=pods,deployment.app": `has no events of the resource "deployment.app"; it has clusterroles.rbac.authorization.k8s.io, deployments.apps, pods`,
			"-n=shop -n=shopping":            `has no events of the namespace "shopping"; it has default, shop`,
			"--cluster=staging":              `has no events of the cluster "staging"; it has prod`,
			"--resource=Widget":              `has no events of the resource "Widget"; it has `,
		} {
			p := startTail(t, strings.Fields(args)...)
			p.stderr.want(want)
			_, stderr := runTail(t, 0, append(strings.Fields(args), "--last", "--no-follow")...)
			if strings.Count(stderr, " has no events of ") != 1 || !strings.Contains(stderr, want) {
				t.Errorf("%s: stderr %q, want %q once", args, stderr, want)
			}
		}
		// These selections match at least one event, or a namespace without other objects.
		bus.putObject(event.Created, event.Resource{Version: "v1", Resource: "namespaces", Kind: "Namespace"}, "", "empty", "")
		for _, args := range []string{"-n=empty", "--resource=po,Deployment,*.rbac.authorization.k8s.io,*", "--cluster=prod -n=shop", "--cluster=*"} {
			if _, stderr := runTail(t, 0, append(strings.Fields(args), "--last", "--no-follow")...); stderr != "" {
				t.Errorf("%s: stderr %q", args, stderr)
			}
		}
		// Tail also checks the configured cluster name.
		t.Setenv("KUBERELAY_CLUSTER_NAME", "staging")
		startTail(t).stderr.want("only the cluster", `has no events of the cluster "staging"; it has prod`)
	})
}

// TestTailAbsentOfMany verifies that if the bus has many names, tail suggests only the most similar one.
func TestTailAbsentOfMany(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		for _, name := range strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda") {
			bus.putBody(event.Created, event.Resource{Group: "example.com", Version: "v1", Resource: name + "s", Kind: "X", Namespaced: true},
				"ns-"+name, "x", time.Now(), func(string) string { return "{}" })
		}
		for args, want := range map[string]string{
			"--resource=betta":             "it has 11 others, did you mean betas?",
			"--resource=gamas.example.com": "it has 11 others, did you mean gammas.example.com?",
			"-n=ns-betta":                  "it has 11 others, did you mean ns-beta?",
		} {
			_, stderr := runTail(t, 0, args, "--last", "--no-follow")
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: stderr %q, want %q in it", args, stderr, want)
			}
		}
	})
}
