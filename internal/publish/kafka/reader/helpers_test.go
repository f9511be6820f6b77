package reader

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader/readertest"
)

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

// limit bounds every wait. Only a failing test gets there.
const limit = time.Minute

const cluster = "prod"

var configMaps = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}

// state is an event of an object; a version of 0 is a delete.
func state(t testing.TB, cluster, name string, version int) *event.Message {
	t.Helper()
	c := event.Change{
		Type: event.Updated, Cause: event.CauseWatch, Key: configMaps.Key("default", name), Resource: configMaps, Observed: time.Now(),
		Object: &event.Object{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: fmt.Sprint(max(version, 1)),
			Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":"uid-of-%[1]s","resourceVersion":"%[2]d"},"data":{"n":"%[2]d"}}`, name, version),
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
	o.Broker.RequestTimeout = 2 * time.Second
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// got is one call of yield, or of another function of the options.
type got struct {
	id        string
	m         *event.Message
	d         publish.Delivery
	err       error // of what is foreign
	tombstone bool
}

func (g got) String() string {
	switch {
	case g.err != nil:
		return "foreign " + g.d.Subject
	case g.tombstone:
		return "tombstone " + g.m.Key.Name
	}
	return g.id
}

// subscriber runs Subscribe until the test ends.
type subscriber struct {
	t       testing.TB
	all     chan got // unbuffered: the subscription waits until it is read
	notices chan error
	result  chan error
	cancel  func()
}

func subscribe(t testing.TB, b *Bus, from publish.From) *subscriber {
	t.Helper()
	s := &subscriber{t: t, all: make(chan got), notices: make(chan error, 10_000), result: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	give := func(g got) error {
		if g.m != nil {
			copied := *g.m
			copied.Data = bytes.Clone(g.m.Data) // it is the subscription's
			g.m = &copied
		}
		select {
		case s.all <- g:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o := publish.SubscribeOptions{
		From:      from,
		Notify:    func(err error) { s.notices <- err },
		Foreign:   func(d publish.Delivery, err error) { _ = give(got{d: d, err: err}) },
		Tombstone: func(k event.Key, d publish.Delivery) { _ = give(got{m: &event.Message{Key: k}, d: d, tombstone: true}) },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.result <- b.Subscribe(ctx, o, func(m *event.Message, d publish.Delivery) error { return give(got{id: m.ID, m: m, d: d}) })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *subscriber) next() got {
	s.t.Helper()
	select {
	case g := <-s.all:
		return g
	case err := <-s.result:
		s.t.Fatalf("the subscription ended: %v", err)
	case <-time.After(limit):
		s.t.Fatalf("nothing within %s", limit)
	}
	return got{}
}

// want reads what must come next.
func (s *subscriber) want(wants ...string) {
	s.t.Helper()
	for i, want := range wants {
		if g := s.next(); g.String() != want {
			s.t.Fatalf("%d of %d is %s at %s (%v), want %s", i, len(wants), g, g.d.Place(), g.err, want)
		}
	}
}

// notice waits for a notice that answers to is.
func (s *subscriber) notice(what string, is func(error) bool) {
	s.t.Helper()
	timeout := time.After(limit)
	for {
		select {
		case err := <-s.notices:
			if is(err) {
				return
			}
		case <-timeout:
			s.t.Fatalf("no notice within %s: %s", limit, what)
		}
	}
}

// reading waits until events can come.
func (s *subscriber) reading() {
	s.t.Helper()
	s.notice("reading", func(err error) bool { return err == nil })
}

// ids are the ids of versions of an object.
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
