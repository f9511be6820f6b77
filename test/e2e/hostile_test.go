//go:build hostile

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var hostileFor = flag.Duration("hostile.for", time.Minute, "how long the hostile tenant acts")

const (
	memoryLimit = 256 << 20 // bytes
	quietLimit  = time.Second
	quietPeriod = 250 * time.Millisecond
)

// TestHostileTenant measures the effect of a hostile tenant on a forwarder with a memory limit of
// 256 MiB, and on another namespace. The tenant may create objects in one namespace. The objects are
// random and reach the limits of the API server. "make hostile" runs the test.
func TestHostileTenant(t *testing.T) {
	bus := natsServer(t)
	cp := controlplanetest.New(t, controlplane.Options{}) // without kube-controller-manager, which would look up each owner
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES": "configmaps,widgets.example.com", "FOLLOW": "ownerReferences", "DATA": "change", "LOG_LEVEL": "error",
	})
	u := newUser(t, cp)
	u.define("widgets", "Widget", "Namespaced")
	hostile, quiet := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	if err := f.Start(fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit/10*9)); err != nil { // the forwarder sets this itself in a container
		t.Fatal(err)
	}
	f.idle()
	before := f.resident()

	ctx, cancel := context.WithTimeout(t.Context(), *hostileFor)
	defer cancel()
	calm := pulse(t, u, bus.URL, quiet, 40, func() bool { return false })
	tenant := &tenant{user: u, namespace: hostile, bytes: rate.NewLimiter(3<<20, 3<<20), changes: rate.NewLimiter(300, 300)}
	var acting sync.WaitGroup
	for seed := range uint64(3) {
		acting.Go(func() { tenant.act(ctx, rand.New(rand.NewPCG(seed, 0))) })
	}
	disturbed := pulse(t, u, bus.URL, quiet, 0, func() bool { return ctx.Err() != nil })
	acting.Wait()

	f.idle()
	peak := f.peak()
	fmt.Printf("hostile tenant for %s: %d requests, %d refused by the API server, %.0f MB sent\n",
		*hostileFor, tenant.requests.Load(), tenant.refused.Load(), mb(tenant.sent.Load()))
	fmt.Printf("memory: %.1f MB before, at most %.1f MB of %.1f MB\n", mb(before), mb(peak), mb(memoryLimit))
	fmt.Printf("quiet namespace: p50 %s, p99 %s, longest %s of %d changes; without the tenant p50 %s, p99 %s\n",
		percentile(disturbed, 50), percentile(disturbed, 99), percentile(disturbed, 100), len(disturbed), percentile(calm, 50), percentile(calm, 99))
	if got := f.Starts(); got != 1 || !f.Running() {
		t.Errorf("the forwarder was started %d times, and runs: %t", got, f.Running())
	}
	if peak > memoryLimit {
		t.Errorf("the forwarder used %.1f MB, want at most %.1f MB", mb(peak), mb(memoryLimit))
	}
	if p99 := percentile(disturbed, 99); p99 > quietLimit {
		t.Errorf("the p99 of a quiet namespace is %s, want at most %s", p99, quietLimit)
	}
	if code, stdout, stderr := f.run("verify"); code != 0 {
		t.Errorf("verify: exit code %d\n%.2000s\n%.2000s", code, stdout, stderr)
	}
}

// percentile returns the p-th percentile of the durations.
func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)*p/100].Round(10 * time.Microsecond)
}

// pulse changes one object in a quiet namespace repeatedly. It stops after most changes or when over
// returns true. It returns the latency of each change, from the API server's response until the
// event arrives.
func pulse(t *testing.T, u *user, url, namespace string, most int, over func() bool) (took []time.Duration) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	events := make(chan *nats.Msg, 1024)
	if _, err := conn.ChanSubscribe(fmt.Sprintf("kuberelay.*.core.configmaps.%s.pulse-%d", namespace, most), events); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	o := u.create(configMaps, namespace, configMap(fmt.Sprintf("pulse-%d", most), "0"))
	ticker := time.NewTicker(quietPeriod)
	defer ticker.Stop()
	for n := 0; (most == 0 || n < most) && !over(); n++ {
		began := time.Now()
		for version := o.GetResourceVersion(); ; {
			select {
			case m := <-events:
				if m.Header.Get("ce-resourceversion") != version {
					continue
				}
			case <-time.After(time.Minute):
				t.Fatalf("version %s of a quiet object is not on the bus after a minute", version)
			}
			break
		}
		took = append(took, time.Since(began))
		<-ticker.C
		o = u.label(configMaps, namespace, o.GetName(), fmt.Sprint(n))
	}
	return took
}

// A tenant has all rights in one namespace.
type tenant struct {
	*user
	namespace      string
	bytes, changes *rate.Limiter // rates that the test's API server and etcd can sustain

	requests, refused, sent atomic.Int64
}

// act sends hostile requests until ctx ends.
func (t *tenant) act(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		gvr, o := t.object(r)
		text, _ := json.Marshal(o)
		if t.changes.Wait(ctx) != nil || t.bytes.WaitN(ctx, min(len(text), t.bytes.Burst())) != nil {
			return
		}
		t.requests.Add(1)
		t.sent.Add(int64(len(text)))
		client, u := t.of(gvr, t.namespace), &unstructured.Unstructured{Object: o}
		var err error
		if r.IntN(8) == 0 {
			err = client.Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		} else if _, err = client.Patch(ctx, u.GetName(), types.MergePatchType, text, metav1.PatchOptions{}); apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, u, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			if t.refused.Add(1) <= 20 {
				t.t.Logf("refused: %.300v", err)
			}
		}
	}
}

// object returns a random object. Most objects are small and change often. The others are as large,
// as deep or as wide as the API server allows.
func (t *tenant) object(r *rand.Rand) (schema.GroupVersionResource, map[string]any) {
	configMap := func(name string, metadata, data map[string]any) (schema.GroupVersionResource, map[string]any) {
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"] = name
		return configMaps, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
	}
	widget := func(name string, spec any) (schema.GroupVersionResource, map[string]any) {
		return widgets, map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"x": spec},
		}
	}
	name := fmt.Sprintf("%03d", r.IntN(5))
	switch kind := r.IntN(200); {
	case kind < 100: // often
		return configMap("often-"+name, nil, map[string]any{"n": fmt.Sprint(r.Int())})
	case kind < 180: // each object leaves a tombstone with a long name
		return configMap(fmt.Sprintf("%s-%d", strings.Repeat("x", 230), r.IntN(20000)), nil, map[string]any{"n": fmt.Sprint(r.Int())})
	case kind == 180: // long
		items := make([]any, 350_000)
		for i := range items {
			items[i] = r.IntN(10)
		}
		return widget("long-"+name, items)
	case kind == 181: // deep
		var x any = map[string]any{}
		for range 1000 + r.IntN(8900) {
			x = map[string]any{"x": x}
		}
		return widget("deep-"+name, x)
	case kind == 182: // lists in lists
		var x any = []any{r.Int()}
		for range 9000 {
			x = []any{x}
		}
		return widget("nested-"+name, x)
	case kind == 183: // owners
		owners := make([]any, 10_000)
		for i := range owners {
			owners[i] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": fmt.Sprint("o", i), "uid": fmt.Sprint(r.Int64())}
		}
		return configMap("owned-"+name, map[string]any{"ownerReferences": owners}, map[string]any{})
	case kind == 184: // incompressible
		b := make([]byte, 700_000)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return configMap("random-"+name, nil, map[string]any{"b": base64.StdEncoding.EncodeToString(b)})
	case kind == 185: // wide
		x := map[string]any{}
		for i := range 40_000 {
			x[fmt.Sprintf("%d/~%%\"%d", r.IntN(1e6), i)] = nil
		}
		return widget("wide-"+name, x)
	case kind == 186: // annotations
		return configMap("annotated-"+name, map[string]any{"annotations": map[string]any{"a": strings.Repeat(string(rune('a'+r.IntN(26))), 250_000)}}, nil)
	case kind == 187: // labels
		l := map[string]any{}
		for i := range 5_000 {
			l[fmt.Sprintf("example.com/%d", i)] = fmt.Sprint(r.IntN(100))
		}
		return configMap("labeled-"+name, map[string]any{"labels": l}, nil)
	case kind == 188: // escapes
		return configMap("escaped-"+name, nil, map[string]any{"e": strings.Repeat("\u2028\x00\"\\", 60_000+r.IntN(10))})
	case kind == 189: // numbers
		items := make([]any, 50_000)
		for i := range items {
			items[i] = json.Number(fmt.Sprintf("%d.%de%d", r.IntN(10), r.Int64(), r.IntN(300)))
		}
		return widget("numbers-"+name, items)
	default: // many medium-sized objects
		return configMap(fmt.Sprintf("many-%d", r.IntN(300)), nil, map[string]any{"m": strings.Repeat(fmt.Sprint(r.Int()), 1500)})
	}
}
