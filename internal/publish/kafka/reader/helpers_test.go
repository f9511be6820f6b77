package reader

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

// limit bounds every wait. Only a failing test waits that long.
const limit = 3 * time.Minute

const cluster = "prod"

var configMaps = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}

// state returns an event of an object. Version 0 means a delete.
func state(t testing.TB, cluster, name string, version int) *event.Message {
	t.Helper()
	c := event.Change{
		Type: event.Updated, Cause: event.CauseWatch, Key: configMaps.Key("default", name), Resource: configMaps, Observed: time.Now(),
		Object: &event.Object{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: fmt.Sprint(max(version, 1)),
			Body: event.JSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":"uid-of-%[1]s","resourceVersion":"%[2]d"},"data":{"n":"%[2]d"}}`, name, version)),
		},
	}
	switch version {
	case 0:
		c.Type = event.Deleted
	case 1:
		c.Type = event.Created
	}
	m, err := event.Builder{Cluster: cluster}.Message(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func marker(t testing.TB, typ event.Type, session string) *event.Message {
	t.Helper()
	m, err := event.Builder{Cluster: cluster}.Marker(typ, configMaps, session, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t testing.TB, o Options, addrs ...string) *Bus {
	t.Helper()
	o.Broker.Addrs = addrs
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// subscriber checks the events that a subscription yields.
type subscriber struct {
	*publishtest.Subscriber
	t testing.TB
}

func subscribe(t testing.TB, b *Bus, from publish.From) *subscriber {
	t.Helper()
	return &subscriber{publishtest.Subscribe(t, b, publish.SubscribeOptions{From: from}), t}
}

// want reads the next events and compares them with wants.
func (s *subscriber) want(wants ...string) {
	s.t.Helper()
	for i, want := range wants {
		if g := s.Next(); g.String() != want {
			s.t.Fatalf("%d of %d is %s at %s (%v), want %s", i, len(wants), g, g.Place(), g.Err, want)
		}
	}
}

// ids returns the IDs of the given versions of an object.
func ids(name string, versions ...int) []string {
	var all []string
	for _, v := range versions {
		if v == 0 {
			all = append(all, "uid-of-"+name+".deleted")
		} else {
			all = append(all, fmt.Sprintf("uid-of-%s.%d", name, v))
		}
	}
	return all
}

func put(t testing.TB, w *readertest.Writer, name string, versions ...int) {
	t.Helper()
	for _, v := range versions {
		w.Put(state(t, cluster, name, v))
	}
}

func passwordFile(t testing.TB, password string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
