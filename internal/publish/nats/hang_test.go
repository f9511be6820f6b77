package nats

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestAServerThatHangs verifies that the bus notices a server process that is suspended while
// nothing is published. Neither the connection nor the stream reports an error.
func TestAServerThatHangs(t *testing.T) {
	s := natstest.StartProcess(t)
	registry := prometheus.NewRegistry()
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, Registerer: registry}})
	s.Freeze()
	poll.Holds(t, "not ready", func() bool { return bus.Ready() != nil })
	poll.Holds(t, "disconnected", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "kuberelay_nats_connected" {
				return f.GetMetric()[0].GetGauge().GetValue() == 0
			}
		}
		t.Fatal("the metric is missing")
		return false
	})
	s.Thaw()
	waitReady(t, bus)
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
}

// TestAStreamThatHangs_Slow verifies that the bus is not ready while two of three servers are down, so
// that nothing can be stored. The third server is connected and responds to pings. An earlier
// version stayed ready as long as nothing was published.
//
// At first, the third server does not respond for the stream. Once it knows that the stream has no
// leader, it describes the stream from its own data. That data may lack acknowledged messages, so
// every reader rejects it.
func TestAStreamThatHangs_Slow(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	bus := connect(t, Options{Connection: Connection{URLs: c.URLs[:1], Cluster: publishtest.Cluster}, Replicas: 3})
	c.Stop(1)
	c.Stop(2)
	poll.Holds(t, "not ready", func() bool { return bus.Ready() != nil })
	if !bus.conn.NC.IsConnected() || bus.conn.NC.Stats().Reconnects > 0 {
		t.Error("the connection was lost")
	}
	poll.Holds(t, "the bus reports that the stream has no leader", func() bool { return errors.Is(bus.Ready(), stream.ErrNoLeader) })
	err := bus.Load(t.Context(), func(event.Key, event.Acked) error { return nil })
	if !errors.Is(err, stream.ErrNoLeader) {
		t.Errorf("Load returns %v, want %v", err, stream.ErrNoLeader)
	}
}
