package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

var testCluster = controlplanetest.Shared{Options: controlplane.Options{Users: map[string][]string{"little": nil}}}

func TestMain(m *testing.M) { os.Exit(testCluster.Run(m)) }

// limit bounds every wait.
const limit = time.Minute

var (
	configMaps = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	secrets    = event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}
	roles      = event.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles", Kind: "Role", Namespaced: true}
)

// world is a cluster and a bus. The test takes the place of the forwarder: it publishes every message.
type world struct {
	t         *testing.T
	kube      *rest.Config
	dynamic   dynamic.Interface
	namespace string
	server    *natstest.Server
	bus       *nats.Bus
	builder   event.Builder
	converter *decode.Converter
	shape     decode.Shape // of the published objects
	js        jetstream.JetStream
	acked     map[event.Key]event.Acked
	topic     *readertest.Writer // of Kafka; nil where the bus is NATS
	opts      Options
	pointed   bool // every difference must be found at a consistency point
}

const (
	clusterName = "test.cluster"
	busDepth    = 4
)

var (
	someTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	web      = event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"}
)

var redactionKey = []byte("0123456789abcdef")

func newWorld(t *testing.T) *world {
	t.Helper()
	cp := testCluster.ControlPlane(t)
	w := &world{
		t: t, kube: cp.Config(), namespace: controlplanetest.Namespace(t, cp), server: natstest.Start(t),
		builder: event.Builder{Cluster: clusterName}, converter: decode.NewConverter(redactionKey, clusterName), acked: map[event.Key]event.Acked{},
	}
	var err error
	if w.dynamic, err = dynamic.NewForConfig(w.kube); err != nil {
		t.Fatal(err)
	}
	at := nats.Options{Connection: nats.Connection{URLs: []string{w.server.URL}, Cluster: clusterName}, History: busDepth}
	if w.bus, err = nats.Connect(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.bus.Close() })
	w.ready(w.bus)
	nc, err := natsgo.Connect(w.server.URL, natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if w.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(limit)); err != nil {
		t.Fatal(err)
	}
	w.opts = Options{
		Kube: w.kube, NATS: natsreader.Options{URLs: at.URLs, Cluster: at.Cluster}, NATSHistory: busDepth, Resources: []string{"configmaps"}, Namespaces: []string{w.namespace},
		Settle: 300 * time.Millisecond,
	}
	return w
}

// ready waits until a bus is ready, which takes some time on a slow machine.
func (w *world) ready(bus *nats.Bus) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := bus.Wait(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) client(r event.Resource) dynamic.ResourceInterface {
	return w.dynamic.Resource(r.GroupVersionResource()).Namespace(w.namespace)
}

func newObject(r event.Resource, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	for k, v := range content {
		u.Object[k] = v
	}
	u.SetAPIVersion(r.APIVersion())
	u.SetKind(r.Kind)
	u.SetName(name)
	return u
}

// create makes an object in the cluster.
func (w *world) create(r event.Resource, name string, content map[string]any) *unstructured.Unstructured {
	w.t.Helper()
	u, err := w.client(r).Create(w.t.Context(), newObject(r, name, content), metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// update changes an object in the cluster.
func (w *world) update(r event.Resource, u *unstructured.Unstructured, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	w.t.Helper()
	u = u.DeepCopy()
	change(u)
	u, err := w.client(r).Update(w.t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// touch changes a label of an object, so that it has a new version.
func (w *world) touch(u *unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	return w.update(configMaps, u, func(u *unstructured.Unstructured) {
		n, _ := strconv.Atoi(u.GetLabels()["touched"])
		u.SetLabels(map[string]string{"touched": strconv.Itoa(n + 1)})
	})
}

func (w *world) delete(r event.Resource, name string) {
	w.t.Helper()
	if err := w.client(r).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// publish publishes an event as the forwarder does, after applying change, and returns its
// position.
func (w *world) publish(t event.Type, r event.Resource, u *unstructured.Unstructured, change ...func(*event.Change)) uint64 {
	w.t.Helper()
	position, err := w.tryPublish(t, r, u, change...)
	if err != nil {
		w.t.Fatal(err)
	}
	return position
}

func (w *world) tryPublish(t event.Type, r event.Resource, u *unstructured.Unstructured, change ...func(*event.Change)) (uint64, error) {
	m, err := w.message(t, r, u, change...)
	if err != nil {
		return 0, err
	}
	return w.send(m)
}

// convert converts an object as the watch does.
func (w *world) convert(r event.Resource, u *unstructured.Unstructured) (*event.Object, error) {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	return w.converter.Decoder(r, nil, nil, w.shape).Decode(text)
}

// message returns the event that follows the last event of its object.
func (w *world) message(t event.Type, r event.Resource, u *unstructured.Unstructured, change ...func(*event.Change)) (*event.Message, error) {
	o, err := w.convert(r, u)
	if err != nil {
		return nil, err
	}
	k := r.Key(u.GetNamespace(), u.GetName())
	c := event.Change{Type: t, Cause: event.CauseWatch, Key: k, Resource: r, Object: o, Observed: time.Now()}
	if was := w.acked[k]; was.UID == string(o.UID) {
		c.Previous = was.ResourceVersion
	}
	for _, f := range change {
		f(&c)
	}
	return w.builder.Message(c)
}

// send publishes a message that follows the last message of its object.
func (w *world) send(m *event.Message) (uint64, error) {
	m.Expected = w.acked[m.Key].Position
	if w.topic != nil {
		position, err := w.topic.TryPut(m)
		w.acked[m.Key] = m.Acked
		return position, err
	}
	type outcome struct {
		position uint64
		err      error
	}
	done := make(chan outcome, 1)
	w.bus.Publish(context.Background(), m, func(position uint64, err error) { done <- outcome{position, err} })
	select {
	case o := <-done:
		if o.err == nil {
			m.Acked.Position = o.position
			w.acked[m.Key] = m.Acked
		}
		return o.position, o.err
	case <-time.After(limit):
		return 0, errors.New("no acknowledgement")
	}
}

// sync publishes all objects of a resource in the namespace.
func (w *world) sync(r event.Resource) {
	w.t.Helper()
	list, err := w.client(r).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		w.publish(event.Created, r, &list.Items[i])
	}
}

func (w *world) verify() (report.Report, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	return Run(ctx, w.opts)
}

// found runs verify and returns the problems in short form: kind, name, a colon and the detail.
func (w *world) found() []string {
	w.t.Helper()
	r, err := w.verify()
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("%s", b.String())
	var all []string
	for _, p := range r.Problems {
		if isOrder := p.Kind == report.Misordered || p.Kind == report.Malformed; w.pointed && !isOrder && p.Point == "" {
			w.t.Errorf("%s %s was not found at the consistency point", p.Kind, p.Name)
		}
		all = append(all, fmt.Sprintf("%s %s: %s", p.Kind, p.Name, p.Detail))
	}
	return all
}

// want fails the test unless got has exactly one problem for each text, in the same order, and each
// problem contains its text.
func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d problems, want %d: %q", len(got), len(want), got)
	}
	for i := range got {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("got %q, want %q in it", got[i], want[i])
		}
	}
}
