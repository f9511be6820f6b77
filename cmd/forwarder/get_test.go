package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/tail"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// putObject publishes a state of an object that was created three hours ago.
func (b *tailBus) putObject(typ event.Type, r event.Resource, namespace, name, app string) {
	b.t.Helper()
	created := time.Now().Add(-3 * time.Hour).UTC().Format(time.RFC3339)
	b.putBody(typ, r, namespace, name, time.Now(), func(version string) string {
		o := map[string]any{
			"apiVersion": r.APIVersion(), "kind": r.Kind, "spec": map[string]any{"big": json.Number("12345678901234567890"), "text": "é <>"},
		}
		metadata := map[string]any{"name": name, "uid": "uid-of-" + b.cluster + name, "resourceVersion": version, "creationTimestamp": created}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		if app != "" {
			metadata["labels"] = map[string]any{"app": app}
		}
		o["metadata"] = metadata
		text, err := json.Marshal(o)
		if err != nil {
			b.t.Fatal(err)
		}
		return string(text)
	})
}

// point publishes a consistency point.
func (b *tailBus) point(r event.Resource, asOf time.Time) {
	b.t.Helper()
	m, err := event.Builder{Cluster: b.cluster}.Resolved(event.Point{Resource: r, Version: "100", Objects: 1, AsOf: asOf, Taken: asOf})
	if err != nil {
		b.t.Fatal(err)
	}
	b.publish(m)
}

// runGet runs get and returns its output.
func runGet(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tailLimit)
	defer cancel()
	var out, errs bytes.Buffer
	if got := run(ctx, append([]string{"get"}, args...), &out, &errs); got != code || ctx.Err() != nil {
		t.Fatalf("get %q: exit code %d (%v), want %d; stdout %q, stderr %q", args, got, ctx.Err(), code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// shop publishes objects in several namespaces. One of the objects is deleted, and one is updated.
func (b *tailBus) shop() {
	b.t.Helper()
	b.mark(event.SnapshotStarted, tailDeployments, 0)
	b.putObject(event.Snapshot, tailDeployments, "shop", "web", "web")
	b.putObject(event.Snapshot, tailDeployments, "shop", "cart", "cart")
	b.putObject(event.Snapshot, tailDeployments, "shop", "old", "")
	b.putObject(event.Snapshot, tailDeployments, "default", "api", "")
	b.mark(event.SnapshotCompleted, tailDeployments, 4)
	b.putObject(event.Updated, tailDeployments, "shop", "cart", "cart")
	b.putObject(event.Deleted, tailDeployments, "shop", "old", "")
	b.putObject(event.Created, tailRoles, "", "\x1b[2J", "")
	b.putObject(event.Created, tailPods, "default", "api-1", "")
	b.point(tailDeployments, time.Now().Add(-5*time.Second))
}

func TestGet(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		bus.shop()
		for _, tc := range []struct {
			args string
			code int
			want string
			says []string // on stderr, in order
		}{
			{"deployments -n shop", 0, "NAME AGE\ncart 3h\nweb 3h\n", []string{`deployments.apps of the cluster "prod" as of 2`, "Z, ", " ago"}},
			{"deployments", 0, "NAME AGE\napi 3h\n", nil},
			{"deploy -A", 0, "NAMESPACE NAME AGE\ndefault api 3h\nshop cart 3h\nshop web 3h\n", nil},
			{"Deployment -A -l app=web", 0, "NAMESPACE NAME AGE\nshop web 3h\n", nil},
			{"deployments.apps -n shop,default", 0, "NAMESPACE NAME AGE\ndefault api 3h\nshop cart 3h\nshop web 3h\n", nil},
			{"deployments.apps web cart -n shop", 0, "NAME AGE\ncart 3h\nweb 3h\n", nil},
			{"deployments,pods", 0, "NAME AGE\ndeployment.apps/api 3h\npod/api-1 3h\n", []string{"the bus has no consistency point of pods of the cluster", "deployments.apps of the cluster"}},
			{"deployments -n shop -o name", 0, "deployment.apps/cart\ndeployment.apps/web\n", nil},
			{"clusterroles -o wide", 0, "NAME AGE KIND RESOURCEVERSION CHANGED\n" + `"\x1b[2J" 3h ClusterRole v7` + "\n", nil},
			{"clusterroles -A", 0, "NAME AGE\n" + `"\x1b[2J" 3h` + "\n", nil},
			{"deployments -n shop -l app=none", 0, "", []string{`no deployments in the namespace "shop"`, "as of"}},
			{"pods -n shop", 0, "", []string{`no pods in the namespace "shop"`}},
			{"deployments web nothing old -n shop", 1, "NAME AGE\nweb 3h\n", []string{
				`deployments "nothing" not found in the namespace "shop"`, `deployments "old" not found: it was deleted `, " ago",
			}},
			{"deployments web", 1, "", []string{`deployments "web" not found in the namespace "default"; --all-namespaces shows all`}},
			{"deploymets,pods", 1, "NAME AGE\napi-1 3h\n", []string{`has no events of the resource "deploymets"; it has clusterroles.rbac.authorization.k8s.io, deployments.apps, pods`}},
			{"widgets -n shop -o json", 1, "", []string{`has no events of the resource "widgets"; it has `}},
			{"pods -n shopp", 0, "", []string{`has no events of the namespace "shopp"`}},
			{"pods -n default,shopp", 0, "NAMESPACE NAME AGE\ndefault api-1 3h\n", []string{`has no events of the namespace "shopp"; it has default, shop`}},
			{"pods --cluster=prod,staging", 1, "NAME AGE\napi-1 3h\n", []string{`has no events of the cluster "staging"; it has prod`}},
			{"pods --cluster=staging", 1, "", []string{`has no events of the cluster "staging"; it has prod`}},
		} {
			t.Run(tc.args, func(t *testing.T) {
				stdout, stderr := runGet(t, tc.code, strings.Fields(tc.args)...)
				got := regexp.MustCompile(`(?m) +$`).ReplaceAllString(regexp.MustCompile(`3h\d+m|3h`).ReplaceAllString(squeeze(stdout), "3h"), "")
				if strings.Contains(tc.args, "wide") {
					got = regexp.MustCompile(`ClusterRole (\d+) [0-9ms]+`).ReplaceAllString(got, "ClusterRole v$1")
				}
				if got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				rest := stderr
				for _, want := range tc.says {
					i := strings.Index(rest, want)
					if i < 0 {
						t.Fatalf("stderr %q, want %q in it", stderr, tc.says)
					}
					rest = rest[i:]
				}
			})
		}
	})
}

// TestGetContent verifies that get prints the published objects unchanged as JSON and YAML.
func TestGetContent(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *tailBus) {
		bus.shop()
		for _, format := range []string{"json", "yaml"} {
			one, _ := runGet(t, 0, "deployments", "web", "-n=shop", "-o="+format)
			list, _ := runGet(t, 0, "deployments", "-n=shop", "-o="+format)
			none, _ := runGet(t, 0, "pods", "-n=shop", "-o="+format)
			if !strings.Contains(one, "12345678901234567890") || !strings.Contains(one, "é <>") {
				t.Errorf("%s: got %s, want numbers and texts unchanged", format, one)
			}
			type object struct {
				APIVersion, Kind string
				Metadata         struct{ Name, ResourceVersion string }
			}
			var single object
			var many, empty struct {
				object
				Items []object
			}
			for text, into := range map[string]any{one: &single, list: &many, none: &empty} {
				if format == "yaml" {
					converted, err := yaml.YAMLToJSON([]byte(text))
					if err != nil {
						t.Fatal(err)
					}
					text = string(converted)
				}
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatalf("%s: %v in %s", format, err, text)
				}
			}
			if single.Kind != "Deployment" || single.APIVersion != "apps/v1" || single.Metadata.Name != "web" {
				t.Errorf("%s of a name: got %s", format, one)
			}
			if many.Kind != "List" || many.APIVersion != "v1" || len(many.Items) != 2 || many.Items[0].Metadata.Name != "cart" || many.Items[0].Metadata.ResourceVersion != "5" {
				t.Errorf("%s of a namespace: got %s", format, list)
			}
			if empty.Kind != "List" || empty.Items == nil || len(empty.Items) != 0 {
				t.Errorf("%s of nothing: got %s", format, none)
			}
		}
	})
}

// TestGetClusters verifies the output of get for two clusters on one bus.
func TestGetClusters(t *testing.T) {
	url := natstest.Start(t).URL
	for _, cluster := range []string{"prod", "staging.eu"} {
		newTailBus(t, url, cluster, nats.Structured).putObject(event.Created, tailPods, "default", "in-"+cluster, "")
	}
	t.Setenv("KUBERELAY_NATS_URL", url)
	stdout, _ := runGet(t, 0, "pods")
	if got, want := squeeze(stdout), "CLUSTER NAME AGE\nprod in-prod 3h\nstaging.eu in-staging.eu 3h\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, stderr := runGet(t, exitUsage, "pods", "-o=json"); !strings.Contains(stderr, "--cluster") {
		t.Errorf("JSON of several clusters: stderr %q", stderr)
	}
	t.Setenv("KUBERELAY_CLUSTER_NAME", "staging.eu")
	stdout, stderr := runGet(t, 0, "pods")
	if got, want := squeeze(stdout), "NAME AGE\nin-staging.eu 3h\n"; got != want || !strings.Contains(stderr, "--cluster=* shows all") {
		t.Errorf("got %q, want %q; stderr %q", got, want, stderr)
	}
	if stdout, _ = runGet(t, 0, "pods", "--cluster=*", "-o=wide"); !strings.HasPrefix(stdout, "CLUSTER") {
		t.Errorf("all clusters: got %q", stdout)
	}
}

// TestGetForeign verifies that get fails if a message that is not an event hides an object. Otherwise
// the object would be missing in the list.
func TestGetForeign(t *testing.T) {
	url := natstest.Start(t).URL
	bus := newTailBus(t, url, "prod", nats.Binary)
	bus.putObject(event.Created, tailPods, "default", "a", "")
	bus.putObject(event.Created, tailPods, "default", "b", "")
	nc, err := natsgo.Connect(url, natsgo.Timeout(tailLimit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(tailLimit))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subject.Object("kuberelay", "prod", tailPods.Key("default", "a")), []byte("\x1b[2J")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERELAY_NATS_URL", url)
	stdout, stderr := runGet(t, exitFailure, "pods")
	if got, want := squeeze(stdout), "NAME AGE\nb 3h\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := "the last message of kuberelay.prod.core.pods.default.a is not the state of an object"; !strings.Contains(stderr, want) || strings.Contains(stderr, "\x1b") {
		t.Errorf("stderr %q, want %q in it", stderr, want)
	}
}

// TestGetWithoutBus verifies that get does not wait for a missing stream or an unreachable server.
func TestGetWithoutBus(t *testing.T) {
	ns := natstest.Start(t)
	t.Setenv("KUBERELAY_NATS_URL", ns.URL)
	if _, stderr := runGet(t, exitFailure, "pods"); !strings.Contains(stderr, "check KUBERELAY_NATS_STREAM") {
		t.Errorf("without a stream: stderr %q", stderr)
	}
	ns.Stop()
	if _, stderr := runGet(t, exitFailure, "pods"); !strings.Contains(stderr, "check KUBERELAY_NATS_URL") {
		t.Errorf("without a server: stderr %q", stderr)
	}
	t.Setenv("KUBERELAY_NATS_URL", "")
	t.Setenv("KUBERELAY_NATS_LISTEN", ns.Addr())
	if _, stderr := runGet(t, exitFailure, "pods"); !strings.Contains(stderr, "is a forwarder running on this machine?") {
		t.Errorf("without a built-in server: stderr %q", stderr)
	}
}

func TestGetRefuses(t *testing.T) {
	for args, says := range map[string]string{
		"":                     "name a resource",
		"pods/web":             `"pods/web": a subresource or an API path`,
		"pods,":                `"": a part before, after, or between dots is empty`,
		"pods -o=table":        `--output="table": use wide, name, json, or yaml`,
		"pods -n=shop -A":      "--namespace and --all-namespaces",
		"pods web -l=app=web":  "--selector and a name",
		"pods -l=app@web":      `--selector="app@web"`,
		"pods -n=*":            `--namespace="*"`,
		"pods --cluster=a/b":   `--cluster="a/b"`,
		"pods --namespace=":    "--namespace is empty",
		"pods --all-names=yes": "unknown flag",
	} {
		t.Run(args, func(t *testing.T) {
			if _, stderr := runGet(t, exitUsage, strings.Fields(args)...); !strings.Contains(stderr, says) {
				t.Errorf("got %q, want %q in it", stderr, says)
			}
		})
	}
}

func TestFreshness(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(resource string, age time.Duration) tail.Freshness {
		return tail.Freshness{Cluster: "prod", Resource: schema.GroupResource{Resource: resource}, AsOf: now.Add(-age)}
	}
	without := tail.Freshness{Cluster: "prod", Resource: schema.GroupResource{Group: "apps", Resource: "daemonsets"}}
	syncing := of("nodes", 0)
	syncing.Syncing = true
	for _, tc := range []struct {
		name string
		all  []tail.Freshness
		want []string
	}{
		{"nothing", nil, nil},
		{"recent", []tail.Freshness{of("pods", 3*time.Second)}, []string{`pods of the cluster "prod" as of 2026-03-01T11:59:57Z, 3s ago`}},
		{"the oldest of two", []tail.Freshness{of("pods", 3*time.Second), of("services", time.Minute)}, []string{`services of the cluster "prod" as of 2026-03-01T11:59:00Z, 60s ago`}},
		{"a clock that is behind", []tail.Freshness{of("pods", -time.Second)}, []string{`pods of the cluster "prod" as of 2026-03-01T12:00:01Z, 0s ago`}},
		{"old", []tail.Freshness{of("pods", 5*time.Minute)}, []string{`pods of the cluster "prod" as of 2026-03-01T11:55:00Z, 5m ago: the forwarder might be down or behind`}},
		{"no point", []tail.Freshness{without}, []string{`the bus has no consistency point of daemonsets.apps of the cluster "prod", so the age of the objects is unknown`}},
		{"syncing", []tail.Freshness{syncing}, []string{`the first sync of nodes of the cluster "prod" is not complete: objects can be missing`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := freshness(tc.all, now); strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
