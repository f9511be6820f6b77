package replica

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// slow is a stream whose reader stops at one message until resume is closed.
type slow struct {
	*natsreader.Bus
	at     string // part of the message's id
	seen   chan struct{}
	resume chan struct{}
	once   sync.Once
}

func (s *slow) SubscribeRaw(ctx context.Context, o publish.SubscribeOptions, yield func(*natsreader.Raw) error) error {
	return s.Bus.SubscribeRaw(ctx, o, func(m *natsreader.Raw) error {
		err := yield(m)
		if id := m.Headers["ce-id"]; len(id) > 0 && strings.Contains(id[0], s.at) {
			s.once.Do(func() { close(s.seen); <-s.resume })
		}
		return err
	})
}

const (
	clusterName = "test.cluster"
	busDepth    = 4
	limit       = time.Minute // bounds every wait
)

// writer publishes as a forwarder does.
type writer struct {
	t     *testing.T
	url   string
	bus   *nats.Bus
	js    jetstream.JetStream
	acked map[event.Key]event.Acked
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	s := natstest.Start(t)
	bus, err := nats.Connect(t.Context(), nats.Options{Connection: nats.Connection{URLs: []string{s.URL}, Cluster: clusterName}, History: busDepth})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	if err := bus.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc, err := natsgo.Connect(s.URL, natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	return &writer{t: t, url: s.URL, bus: bus, js: js, acked: map[event.Key]event.Acked{}}
}

// publish publishes a state of a ConfigMap and returns its position.
func (w *writer) publish(typ event.Type, name, uid string, version int) uint64 {
	w.t.Helper()
	r := event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	k := r.Key("default", name)
	m, err := event.Builder{Cluster: clusterName}.Message(event.Change{
		Type: typ, Cause: event.CauseWatch, Key: k, Resource: r, Observed: time.Now(), Previous: w.acked[k].ResourceVersion,
		Object: &event.Object{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name, UID: types.UID("uid-" + uid), ResourceVersion: fmt.Sprint(version),
			Body: event.JSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":"uid-%s","resourceVersion":"%d"}}`, name, uid, version)),
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m.Expected = w.acked[k].Position
	type outcome struct {
		position uint64
		err      error
	}
	done := make(chan outcome, 1)
	w.bus.Publish(w.t.Context(), m, func(position uint64, err error) { done <- outcome{position, err} })
	select {
	case o := <-done:
		if o.err != nil {
			w.t.Fatal(o.err)
		}
		m.Acked.Position = o.position
		w.acked[k] = m.Acked
		return o.position
	case <-time.After(limit):
		w.t.Fatal("no acknowledgement")
		return 0
	}
}

// remove deletes one message from the stream.
func (w *writer) remove(position uint64) {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), "KUBERELAY")
	if err == nil {
		err = s.DeleteMsg(w.t.Context(), position)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestDroppedWhileRead verifies that a message that the stream drops before a slow reader gets it does
// not violate the order, but that a deleted message does.
func TestDroppedWhileRead(t *testing.T) {
	const others = 500 // more than one fetch returns
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
			w := newWriter(t)
			w.publish(event.Created, "hot", "h", 1)
			for i := range others {
				w.publish(event.Created, fmt.Sprintf("other-%d", i), fmt.Sprint(i), 2+i)
			}
			opened, err := natsreader.Connect(t.Context(), natsreader.Options{URLs: []string{w.url}, Cluster: clusterName})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() })
			if err := awaitReady(t.Context(), opened); err != nil {
				t.Fatal(err)
			}
			bus := &slow{Bus: opened, at: "uid-h.1", seen: make(chan struct{}), resume: make(chan struct{})}
			at := place{Prefix: "kuberelay", Cluster: clusterName}
			f := newFollower(natsSource{bus, at}, at, normal.Form{}, busDepth, 24*time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var following sync.WaitGroup
			following.Go(func() { f.Run(ctx) })
			defer following.Wait()
			defer cancel()
			select {
			case <-bus.seen:
			case <-ctx.Done():
				t.Fatal("the first message was not read")
			}
			var positions []uint64
			for i := range tc.updates {
				positions = append(positions, w.publish(event.Updated, "hot", "h", 1000+i))
			}
			if tc.remove {
				w.remove(positions[len(positions)-2])
			}
			close(bus.resume)
			if err := f.CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
			if err := f.ResolveDoubts(ctx); err != nil {
				t.Fatal(err)
			}
			var r report.Report
			f.Report(&r)
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

// BenchmarkFollow reads events of 14 KB and reports the memory for each object.
func BenchmarkFollow(b *testing.B) {
	data, err := newPod().MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	rest, ok := strings.CutPrefix(string(data), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod"}`)
	if !ok {
		b.Fatal("the JSON of the pod begins in an unexpected way")
	}
	builder := event.Builder{Cluster: clusterName}
	at := place{Prefix: "kuberelay", Cluster: clusterName}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := newFollower(nil, at, normal.Form{}, 8, 0)
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
		header := map[string][]string{}
		for _, a := range m.Attributes {
			header["ce-"+a.Name] = []string{a.Value}
		}
		b.StartTimer()
		d := publish.Delivery{Subject: subject.Object("kuberelay", clusterName, k), Position: uint64(n + 1), Stored: someTime}
		if err := f.take(d, func() (wire.Event, error) { return wire.FromNATS(header, m.Data) }); err != nil {
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

// newPod returns an object of the size of a pod.
func newPod() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "pod"}}}
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

// lostStream is a stream whose subscription can't continue after an outage.
type lostStream struct{ stream }

func (lostStream) SubscribeRaw(context.Context, publish.SubscribeOptions, func(*natsreader.Raw) error) error {
	return publish.ErrLost
}

// TestErrorNamesTheOutage verifies that the error of a lost subscription is true after an outage, when
// the stream can still be the same.
func TestErrorNamesTheOutage(t *testing.T) {
	s := natsSource{stream: lostStream{}}
	f := newFollower(s, place{}, normal.Form{}, testDepth, time.Hour)
	s.run(t.Context(), f)
	if f.ended == nil || !strings.Contains(f.ended.Error(), "or was unreachable for more than 4m0s") {
		t.Errorf("got %v", f.ended)
	}
}
