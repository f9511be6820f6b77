package replica

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

// errCreatingStore is the code of the error "error creating store for stream".
const errCreatingStore jetstream.ErrorCode = 10049

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

// limit bounds every wait. Only a failing test reaches it.
const limit = 3 * time.Minute

const cluster = "test.cluster"

var (
	configMapResource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	configMaps        = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// state is the state of a ConfigMap.
type state struct {
	cluster, namespace, name, apiVersion string
	uid                                  types.UID
	version                              int
	labels                               string // JSON
	kind                                 event.Type
	unknown, truncated                   bool
}

func (s state) message(t testing.TB) *event.Message {
	t.Helper()
	if s.namespace == "" {
		s.namespace = "default"
	}
	if s.cluster == "" {
		s.cluster = cluster
	}
	if s.apiVersion == "" {
		s.apiVersion = "v1"
	}
	if s.labels == "" {
		s.labels = "{}"
	}
	if s.kind == "" {
		s.kind = event.Updated
	}
	if s.uid == "" {
		s.uid = types.UID("uid-of-" + s.name)
	}
	c := event.Change{
		Type: s.kind, Cause: event.CauseWatch, Key: configMapResource.Key(s.namespace, s.name), Resource: configMapResource, Observed: time.Now(),
		Truncated: s.truncated,
		Object: &event.Object{
			APIVersion: s.apiVersion, Kind: "ConfigMap", Namespace: s.namespace, Name: s.name, UID: s.uid, ResourceVersion: fmt.Sprint(s.version),
		},
	}
	if !s.unknown {
		c.Object.Body = event.JSON(fmt.Appendf(nil,
			`{"apiVersion":%q,"kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"uid":%[6]q,"resourceVersion":"%[4]d","labels":%[5]s},"data":{"n":"%[4]d"}}`,
			s.apiVersion, s.name, s.namespace, s.version, s.labels, s.uid))
	}
	m, err := event.Builder{Cluster: s.cluster}.Message(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func marker(t testing.TB, typ event.Type) *event.Message {
	t.Helper()
	m, err := event.Builder{Cluster: cluster}.Marker(typ, configMapResource, "s", 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func point(t testing.TB, version int) *event.Message {
	t.Helper()
	at := time.Unix(int64(version), 0)
	m, err := event.Builder{Cluster: cluster}.Resolved(event.Point{Resource: configMapResource, Version: fmt.Sprint(version), AsOf: at, Taken: at})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// writer writes test data to a bus.
type writer struct {
	put      func(*event.Message)
	points   []func(version int) // one function per log, which writes a consistency point to that log
	putOther func(event.Key)     // writes a message that is not an event, on the subject or key of an object
	open     func(t testing.TB) *Bus
	restart  func()
	recreate func() // deletes the stream or topic and creates it again, empty
	empty    func() // removes all messages
}

func (w *writer) puts(t testing.TB, states ...state) {
	t.Helper()
	for _, s := range states {
		w.put(s.message(t))
	}
}

// sync writes the markers of a complete first snapshot.
func (w *writer) sync(t testing.TB) {
	t.Helper()
	w.put(marker(t, event.SnapshotStarted))
	w.put(marker(t, event.SnapshotCompleted))
}

// onBothBuses runs a test on NATS and on Kafka, each with a new stream or topic.
func onBothBuses(t *testing.T, test func(t *testing.T, w *writer)) {
	t.Run("nats", func(t *testing.T) { test(t, newNATS(t)) })
	t.Run("kafka", func(t *testing.T) { test(t, newKafka(t)) })
}

func newNATS(t testing.TB, configure ...func(*server.Options)) *writer {
	t.Helper()
	ns := natstest.Start(t, configure...)
	nc, err := natsgo.Connect(ns.URL, natsgo.Timeout(limit), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	config := jetstream.StreamConfig{Name: "KUBERELAY", Subjects: []string{"kuberelay.>"}, MaxMsgsPerSubject: 8, FirstSeq: 100}
	create := func() {
		t.Helper()
		for {
			_, err := js.CreateStream(ctx, config)
			// The server may still be removing the files of a deleted stream with the same name.
			if removing := new(jetstream.APIError); errors.As(err, &removing) && removing.ErrorCode == errCreatingStore && ctx.Err() == nil {
				continue
			}
			check(err)
			return
		}
	}
	create()
	// publish retries if a restart of the server loses the message or its acknowledgement.
	publish := func(m *natsgo.Msg) {
		t.Helper()
		if m.Header == nil {
			m.Header = natsgo.Header{}
		}
		m.Header.Set(jetstream.MsgIDHeader, rand.Text())
		for {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			_, err := js.PublishMsg(attempt, m)
			cancel()
			if err == nil || ctx.Err() != nil {
				check(err)
				return
			}
		}
	}
	w := &writer{
		put: func(m *event.Message) {
			t.Helper()
			msg, err := binding.Encode(m, false, binding.NewHeader())
			check(err)
			c, err := clusterOf(m)
			check(err)
			msg.Subject = subject.Object("kuberelay", c, m.Key)
			switch {
			case m.IsResolved():
				msg.Subject = subject.Resolved("kuberelay", c, m.Key.GroupResource())
			case m.Marker:
				msg.Subject = subject.Marker("kuberelay", c, m.Key.GroupResource())
			}
			msg.Header.Del("Nats-Expected-Last-Subject-Sequence")
			publish(msg)
		},
		putOther: func(k event.Key) {
			publish(&natsgo.Msg{Subject: subject.Object("kuberelay", cluster, k), Data: []byte("hello")})
		},
		open: func(t testing.TB) *Bus {
			t.Helper()
			b, err := NATS(ctx, NATSOptions{URLs: []string{ns.URL}})
			return opened(t, b, err)
		},
		restart: ns.Restart,
		recreate: func() {
			check(js.DeleteStream(ctx, "KUBERELAY"))
			config.FirstSeq *= 1000
			create()
		},
		empty: func() {
			s, err := js.Stream(ctx, "KUBERELAY")
			check(err)
			check(s.Purge(ctx))
		},
	}
	w.points = []func(int){func(version int) { w.put(point(t, version)) }}
	return w
}

func clusterOf(m *event.Message) (string, error) {
	key := m.Attribute("partitionkey")
	if m.Marker {
		c, _, err := event.ParseMarkerPartitionKey(key)
		return c, err
	}
	c, _, err := event.ParsePartitionKey(key)
	return c, err
}

func newKafka(t *testing.T) *writer {
	t.Helper()
	const partitions = 3
	broker := kafkabrokertest.Shared(t)
	w := readertest.NewTopic(t, broker, "replica", partitions, map[string]string{"cleanup.policy": "compact"})
	var points []func(int)
	for p := range partitions {
		points = append(points, func(version int) {
			w.PutAt(p, point(t, version))
		})
	}
	return &writer{
		points:   points,
		put:      func(m *event.Message) { w.Put(m) },
		recreate: w.Recreate,
		putOther: func(k event.Key) {
			m := state{name: k.Name, namespace: k.Namespace}.message(t)
			m.Attributes = []event.Attribute{{Name: "partitionkey", Value: m.Attribute("partitionkey")}}
			w.Put(m)
		},
		open: func(t testing.TB) *Bus {
			t.Helper()
			b, err := Kafka(KafkaOptions{Brokers: []string{broker.Addr()}, Topic: w.Topic})
			return opened(t, b, err)
		},
	}
}

func opened(t testing.TB, b *Bus, err error) *Bus {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func gvrOf(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}
