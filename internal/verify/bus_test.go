package verify

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// slow is a stream whose reader stops at one message until it may go on.
type slow struct {
	*nats.Bus
	at     string // part of the message's id
	seen   chan struct{}
	resume chan struct{}
	once   sync.Once
}

func (s *slow) Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
	return s.Bus.Subscribe(ctx, o, func(m *event.Message, d publish.Delivery) error {
		err := yield(m, d)
		if strings.Contains(m.ID, s.at) {
			s.once.Do(func() { close(s.seen); <-s.resume })
		}
		return err
	})
}

func invented(name, uid string, version int) *unstructured.Unstructured {
	u := newObject(configMaps, name, nil)
	u.SetNamespace("default")
	u.SetUID(types.UID("uid-" + uid))
	u.SetResourceVersion(fmt.Sprint(version))
	return u
}

// TestDroppedWhileRead: what the stream dropped between two messages of an object,
// because the reader was slow, is no break of order. What was taken out is.
func TestDroppedWhileRead(t *testing.T) {
	const others = 500 // more than are fetched at a time
	for _, tc := range []struct {
		name    string
		updates int
		remove  bool
		want    string
	}{
		{"dropped", busDepth + 2, false, ""},
		{"taken out", 3, true, "previousversion is"},
		{"dropped to the last, and taken out", busDepth + 2, true, "previousversion is"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.publish(event.Created, configMaps, invented("hot", "h", 1))
			for i := range others {
				w.publish(event.Created, configMaps, invented(fmt.Sprintf("other-%d", i), fmt.Sprint(i), 2+i))
			}
			bus := &slow{Bus: w.bus, at: "uid-h.1", seen: make(chan struct{}), resume: make(chan struct{})}
			f := newFollower(natsSource{bus}, place{Prefix: "kuberelay", Cluster: clusterName}, form{}, busDepth, w.opts.DeleteRetention)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var following sync.WaitGroup
			following.Go(func() { f.run(ctx) })
			defer following.Wait()
			defer cancel()
			select {
			case <-bus.seen:
			case <-ctx.Done():
				t.Fatal("the first message was not read")
			}
			var positions []uint64
			for i := range tc.updates {
				positions = append(positions, w.publish(event.Updated, configMaps, invented("hot", "h", 1000+i)))
			}
			if tc.remove {
				w.remove(positions[len(positions)-2])
			}
			close(bus.resume)
			if err := f.catchUp(ctx); err != nil {
				t.Fatal(err)
			}
			if err := f.resolveDoubts(ctx); err != nil {
				t.Fatal(err)
			}
			var r Report
			f.report(&r)
			if tc.want == "" {
				if len(r.Problems) != 0 {
					t.Errorf("got %+v", r.Problems)
				}
			} else if len(r.Problems) == 0 || !strings.Contains(r.Problems[0].Detail, tc.want) {
				t.Errorf("got %+v", r.Problems)
			}
			if read := r.Messages - 1 - others; read > busDepth {
				t.Errorf("%d messages were read: none was dropped", read)
			}
		})
	}
}

// BenchmarkFollow reads events of 14 KB and says what is kept of each object.
func BenchmarkFollow(b *testing.B) {
	data, err := newPod().MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	rest, ok := strings.CutPrefix(string(data), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod"}`)
	if !ok {
		b.Fatal("the object is written in another way")
	}
	builder := event.Builder{Cluster: clusterName}
	at := place{Prefix: "kuberelay", Cluster: clusterName}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := newFollower(nil, at, form{}, 8, 0)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		name := fmt.Sprintf("pod-%d", n)
		k := event.Key{Resource: "pods", Namespace: "default", Name: name}
		uid, version := fmt.Sprintf("%036d", n), fmt.Sprint(n+1)
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","uid":%q,"resourceVersion":%q}%s`, name, uid, version, rest)
		m, err := builder.Message(event.Change{
			Type: event.Created, Cause: event.CauseWatch, Key: k, Observed: someTime,
			Resource: event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
			Object:   &event.Object{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name, UID: types.UID(uid), ResourceVersion: version, Body: event.JSON(body)},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := f.take(m, publish.Delivery{Subject: event.Subject("kuberelay", clusterName, k), Position: uint64(n + 1), Stored: someTime}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if len(f.history.problems) > 0 {
		b.Fatal(f.history.problems[0])
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(b.N), "kept-B/object")
	runtime.KeepAlive(f)
}

// newPod is an object of the size that pods have.
func newPod() *unstructured.Unstructured {
	u := newObject(event.Resource{Version: "v1", Kind: "Pod"}, "pod", nil)
	var containers []any
	for i := range 8 {
		var env []any
		for j := range 20 {
			env = append(env, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", j), "value": strings.Repeat("v", 30)})
		}
		containers = append(containers, map[string]any{"name": fmt.Sprintf("c-%d", i), "image": "registry.example.com/image:v1.2.3", "env": env})
	}
	u.Object["spec"] = map[string]any{"containers": containers}
	return u
}
