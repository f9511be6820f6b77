package filter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/filter"
)

var (
	pods        = event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	nodes       = event.Resource{Version: "v1", Resource: "nodes", Kind: "Node"}
	deployments = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
)

const object = `{
	"apiVersion": "v1", "kind": "Pod",
	"metadata": {"name": "web-1", "namespace": "default", "labels": {"app": "web"}, "annotations": {"example.com/a": "b"}, "creationTimestamp": "2026-11-22T00:00:00Z"},
	"spec": {"replicas": 3, "paused": false, "x": null, "nodeName": "worker-1", "containers": [
		{"name": "a", "image": "registry.example.com/a:1", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}, "ports": [{"containerPort": 8080}]},
		{"name": "b", "image": "b", "ports": []}]},
	"status": {"phase": "Failed", "ratio": 1.5, "whole": 2.0, "exponent": 1e3, "negative": -7, "large": 9007199254740993, "largest": 9223372036854775807,
		"unsigned": 18446744073709551615, "huge": 1e400, "url": "https://example.com:8443/x?a=b", "ip": "10.0.0.7"}
}`

func TestSelected(t *testing.T) {
	for expression, want := range map[string]bool{
		// Numbers have the type that fits their value.
		`object.spec.replicas > 2`:                               true,
		`object.spec.replicas > 3`:                               false,
		`object.spec.replicas == 3 && 3 == object.spec.replicas`: true,
		`object.spec.replicas + 1 == 4`:                          true,
		`object.spec.replicas > 2.5`:                             true,
		`object.status.ratio == 1.5`:                             true,
		`object.status.ratio < 2`:                                true,
		`object.status.whole == 2`:                               true,
		`object.status.exponent == 1000.0`:                       true,
		`object.status.negative == -7`:                           true,
		`object.status.large == 9007199254740993`:                true,
		`object.status.large == 9007199254740992`:                false,
		`object.status.largest == 9223372036854775807`:           true,
		`object.status.unsigned == 18446744073709551615u`:        true,
		`object.status.unsigned > object.status.largest`:         true,
		`object.status.huge > 1.0e300`:                           true,
		`type(object.spec.replicas) == int`:                      true,
		`type(object.status.ratio) == double`:                    true,
		`[1, 3].exists(n, n == object.spec.replicas)`:            true,
		`object.spec.replicas in [1, 3]`:                         true,

		// Other JSON types.
		`object.status.phase == "Failed"`:                                              true,
		`!object.spec.paused`:                                                          true,
		`object.spec.paused`:                                                           false,
		`object.spec.x == null`:                                                        true,
		`has(object.spec.y)`:                                                           false,
		`has(object.spec.replicas) && !has(object.status.reason)`:                      true,
		`object.metadata.labels == {"app": "web"}`:                                     true,
		`object.metadata.annotations["example.com/a"] == "b"`:                          true,
		`"app" in object.metadata.labels`:                                              true,
		`object.spec.containers.size() == 2`:                                           true,
		`object.spec.containers.exists(c, c.ports.exists(p, p.containerPort == 8080))`: true,
		`object.spec.containers.all(c, c.image.startsWith("registry."))`:               false,
		`object.spec.containers[1].name == "b"`:                                        true,
		`object.?status.?reason.orValue("none") == "none"`:                             true,
		`object.spec.containers.map(c, c.name) == ["a", "b"]`:                          true,
		`object.metadata.labels.exists(k, k == "app")`:                                 true,
		`object.metadata.labels.all(k, v, k == "app" && v == "web")`:                   true,
		`object.missing == 1 || true`:                                                  true,
		`false && object.missing == 1`:                                                 false,

		// The functions of Kubernetes.
		`quantity(object.spec.containers[0].resources.limits.memory).isGreaterThan(quantity("512Mi"))`: true,
		`quantity(object.spec.containers[0].resources.limits.cpu).compareTo(quantity("0.5")) == 0`:     true,
		`isQuantity(object.status.phase)`:                                                  false,
		`object.spec.nodeName.find("[0-9]+") == "1"`:                                       true,
		`object.spec.nodeName.matches("^worker-[0-9]+$")`:                                  true,
		`url(object.status.url).getHostname() == "example.com"`:                            true,
		`isURL(object.status.phase)`:                                                       false,
		`cidr("10.0.0.0/8").containsIP(object.status.ip)`:                                  true,
		`ip(object.status.ip).family() == 4`:                                               true,
		`semver("1.2.3").isLessThan(semver("1.10.0"))`:                                     true,
		`[1, 2, 3].sum() == 6 && [1, 2].isSorted() && [3, 1].min() == 1`:                   true,
		`object.metadata.name.split("-") == ["web", "1"]`:                                  true,
		`object.metadata.name.upperAscii() == "WEB-1"`:                                     true,
		`sets.contains(["a", "b"], object.spec.containers.map(c, c.name))`:                 true,
		`timestamp(object.metadata.creationTimestamp) < timestamp("2026-11-23T00:00:00Z")`: true,
		`object.spec.containers.map(c, c.name).join(",") == "a,b"`:                         true,
		`format.dns1123Label().validate(object.metadata.name) == optional.none()`:          true,
		`[3, 1, 2].sort() == [1, 2, 3]`:                                                    true,

		`resource.resource == "pods" && resource.group == "" && resource.version == "v1" && resource.kind == "Pod" && resource.namespaced && has(object.spec)`: true,
	} {
		t.Run(expression, func(t *testing.T) {
			selects := compile(t, expression).For(pods)
			got := true
			if selects != nil {
				var err error
				if got, err = selects(decode(t, object)); err != nil {
					t.Fatal(err)
				}
			}
			if got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestFor verifies that objects need not be decoded if an expression is true for all objects of a
// resource, and need not be inspected if it is false for all.
func TestFor(t *testing.T) {
	const all, none, look = "all", "none", "look"
	for _, tc := range []struct{ expression, pods, nodes, deployments string }{
		{``, all, all, all},
		{` `, all, all, all},
		{`true`, all, all, all},
		{`false`, none, none, none},
		{`resource.resource != "pods" || object.status.phase == "Failed"`, look, all, all},
		{`object.status.phase == "Failed" || resource.resource != "pods"`, look, all, all},
		{`resource.resource == "pods" && object.status.phase == "Failed"`, look, none, none},
		{`resource.kind != "Pod"`, none, all, all},
		{`!resource.namespaced || "app" in object.metadata.labels`, look, all, look},
		{`resource.group == "apps" ? has(object.spec) : resource.namespaced`, all, none, look},
		{`!(resource.resource in ["pods", "deployments"]) || object.metadata.namespace != "kube-system"`, look, all, look},
		{`resource.group.endsWith("apps") || object.spec.containers.all(c, has(c.name))`, look, look, all},
		{`resource.version == "v1" || object.?spec.?x.orValue(true)`, all, all, all},
		{`object.a == object.a || true`, all, all, all},
		{`[object.a, dyn(resource.kind)].exists(x, x == "Pod")`, look, look, look},
		{`has(object.spec)`, look, look, look},
	} {
		t.Run(tc.expression, func(t *testing.T) {
			f := compile(t, tc.expression)
			for r, want := range map[event.Resource]string{pods: tc.pods, nodes: tc.nodes, deployments: tc.deployments} {
				got := look
				if selects := f.For(r); selects == nil {
					got = all
				} else if !selected(selects, nil) && !selected(selects, decode(t, object)) && !selected(selects, map[string]any{"a": true}) {
					got = none
				}
				if got != want {
					t.Errorf("%s: got %s, want %s", r.Resource, got, want)
				}
			}
		})
	}
}

func selected(selects func(map[string]any) (bool, error), object map[string]any) bool {
	selected, err := selects(object)
	return selected || err != nil
}

// TestConcurrently lets the race detector check concurrent evaluations of objects of several
// resources. Some failures return an error value that cel-go shares between evaluations.
func TestConcurrently(t *testing.T) {
	content := decode(t, object)
	var wg sync.WaitGroup
	for _, expression := range []string{
		`object.status.phase == "Failed"`, `object.status.phase > 1`, `object.missing`, `object.spec.replicas.matches("x")`, `object.status.phase.getFullYear() == 1`,
		`timestamp(object.status.largest) < timestamp("2026-11-23T00:00:00Z")`, `!object.status.phase`, `object.status.phase.all(c, true)`,
	} {
		for _, r := range []event.Resource{pods, nodes} {
			f := compile(t, expression)
			for range 4 {
				wg.Go(func() {
					want, wantErr := f.For(r)(content)
					for range 20 {
						if got, err := f.For(r)(content); got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
							t.Errorf("%s: got %v, %v, and before %v, %v", expression, got, err, want, wantErr)
						}
					}
				})
			}
		}
	}
	wg.Wait()
}

// TestDistinct verifies that distinct works on a list of the object. The cost of distinct in cel-go panics
// in an evaluation without an object.
func TestDistinct(t *testing.T) {
	f := compile(t, `object.l.distinct().size() == 2`)
	for want, l := range map[bool][]any{true: {"a", "b", "a"}, false: {"a"}} {
		if got, err := f.For(pods)(map[string]any{"l": l}); got != want || err != nil {
			t.Errorf("%v: got %v, %v; want %v", l, got, err, want)
		}
	}
}

// FuzzFilter verifies that For, which evaluates what it can without an object, gives the same result
// as an evaluation with the object.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		`resource.resource != "pods" || object.status.phase == "Failed"`, `object.a.b[0] > 1 && has(object.c)`, `object.l.all(x, x.y == "z") ? true : object.q`,
		`[1, object.a].exists(x, x == 1)`, `resource.namespaced || object.?a.?b.orValue(resource.kind == "Pod")`, `object.a == 1 || true`, `quantity(object.q).isLessThan(quantity("1"))`,
		`resource.group.size() > 0 || [resource.kind].map(k, k + object.a).size() == 1`, `{resource.kind: object.a}.Pod == 1`, `dyn(resource.kind)`,
	} {
		f.Add(s, `{"a":{"b":[2]},"c":null,"l":[{"y":"z"}],"q":"1Gi"}`)
	}
	f.Fuzz(func(t *testing.T, expression, text string) {
		compiled, err := filter.Compile(expression)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "KUBERELAY_FILTER") {
				t.Errorf("the error does not name the variable: %v", err)
			}
			return
		}
		var content map[string]any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if d.Decode(&content) != nil {
			return
		}
		// The result of this expression is never known without an object, and equals the result of
		// the fuzzed expression.
		opaque, err := filter.Compile("has(object.metadata) ? (" + expression + ") : (" + expression + ")")
		if err != nil {
			return // the expression ends in a comment, or is nested too deeply
		}
		for _, r := range []event.Resource{pods, nodes, deployments} {
			want, wantErr := true, error(nil)
			if selects := opaque.For(r); selects != nil {
				want, wantErr = selects(content)
			}
			got, gotErr := true, error(nil)
			if selects := compiled.For(r); selects != nil {
				got, gotErr = selects(content)
			}
			if got != want || (gotErr == nil) != (wantErr == nil) {
				t.Errorf("%s: %v, %v; with the object %v, %v", r.Resource, got, gotErr, want, wantErr)
			}
		}
	})
}

func compile(t testing.TB, expression string) *filter.Filter {
	t.Helper()
	f, err := filter.Compile(expression)
	if err != nil {
		t.Fatal(err)
	}
	f.SetTimeout(time.Hour) // what the cost limit does must not depend on the speed of the machine
	return f
}

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	var content map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&content); err != nil {
		t.Fatal(err)
	}
	return content
}

func TestNever(t *testing.T) {
	for expression, want := range map[string]bool{
		`resource.kind == "pods"`:                                    true,
		`resource.kind == "Pod"`:                                     false,
		`resource.kind == "pods" && object.status.phase == "Failed"`: true,
		`resource.kind == "Pod" && object.status.phase == "Failed"`:  false,
		`object.status.phase == "Failed"`:                            false,
		`false`:                                                      true,
		`resource.kind.matches(resource.kind + "(") || false`:        false, // it fails
		``: false,
	} {
		if got := compile(t, expression).Never(pods); got != want {
			t.Errorf("%q: got %v", expression, got)
		}
	}
}
