package nats

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestSharedConnection verifies that several buses share one connection. A bus that closes does not
// disturb the messages that another bus has in flight, and the last bus closes the connection.
func TestSharedConnection(t *testing.T) {
	s := natstest.StartProcess(t)
	shared := &Shared{}
	registries := make([]*prometheus.Registry, 3)
	buses := make([]*Bus, len(registries))
	for n := range buses {
		registries[n] = prometheus.NewRegistry()
		buses[n] = open(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: fmt.Sprintf("c%d", n), Shared: shared, Registerer: registries[n]}})
		waitReady(t, buses[n])
		publishOK(t, buses[n], publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	}
	if all := s.Connections(); len(all) != 1 || all[0].Name != "kuberelay" {
		t.Errorf("%d connections: %v", len(all), all)
	}

	s.Freeze()
	completed := make([]chan error, len(buses))
	for n, b := range buses {
		completed[n] = make(chan error, 1)
		b.Publish(t.Context(), publishtest.Object{Name: "other", Version: 2}.Message(t, 0), func(_ uint64, err error) { completed[n] <- err })
	}
	buses[0].Close()
	if err := <-completed[0]; !errors.Is(err, errClosed) {
		t.Errorf("the closed bus completed with %v, want %v", err, errClosed)
	}
	s.Thaw()
	for n, b := range buses[1:] {
		if err := <-completed[n+1]; err != nil {
			t.Errorf("a message that another bus had in flight: %v", err)
		}
		if got := b.conn.NC.Stats().Reconnects; got != 0 {
			t.Errorf("connected anew %d times", got)
		}
	}
	for n, want := range []float64{0, 1, 1} {
		if got := gathered(t, registries[n], "kuberelay_nats_connected"); got != want {
			t.Errorf("kuberelay_nats_connected of bus %d is %v, want %v", n, got, want)
		}
	}

	again := open(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: "c0", Shared: shared}})
	waitReady(t, again)
	for _, b := range append(buses, again) {
		b.Close()
	}
	poll.Holds(t, "the connection is closed", func() bool { return len(s.Connections()) == 0 })
}

// TestSharedConnectionThatEnded verifies that every bus reports a connection that the server closed
// permanently, and that the next bus gets a new connection.
func TestSharedConnectionThatEnded(t *testing.T) {
	url, shared := natstest.Start(t).URL, &Shared{}
	first := open(t, Options{Connection: Connection{URLs: []string{url}, Cluster: "first", Shared: shared}})
	second := open(t, Options{Connection: Connection{URLs: []string{url}, Cluster: "second", Shared: shared}})
	if err := first.conn.NC.Publish(strings.Repeat("x", maxControlLine+100), nil); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Bus{first, second} {
		poll.Holds(t, "the bus says that it is gone", func() bool { return errors.Is(b.Ready(), publish.ErrGone) })
	}
	next := open(t, Options{Connection: Connection{URLs: []string{url}, Cluster: "first", Shared: shared}})
	first.Close()
	waitReady(t, next)
	publishOK(t, next, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
}

// TestPermissionOfAnotherCluster verifies that a bus on a shared connection does not report a
// missing permission for the subjects of another bus's cluster.
func TestPermissionOfAnotherCluster(t *testing.T) {
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "relay", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"kuberelay.second.>"}},
		}}}
	})
	o := Options{Connection: Connection{URLs: []string{s.URL}, User: "relay", PasswordFile: file(t, "p"), Shared: &Shared{}}}
	o.Cluster = "first"
	first := connect(t, o)
	o.Cluster, o.AckTimeout = "second", limit/100
	second := connect(t, o)
	poll.Holds(t, "the bus reports the missing permission", func() bool { // the publish can time out first
		_, err := publishNow(t, second, odd(t))
		return errors.Is(err, natsgo.ErrPermissionViolation)
	})
	if err := first.conn.PermissionError(); err != nil {
		t.Errorf("the other cluster reports %v", err)
	}
}
