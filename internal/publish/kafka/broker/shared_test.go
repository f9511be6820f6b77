package broker

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// counting is a listener that counts its connections.
type counting struct {
	net.Listener

	accepted *atomic.Int32
}

func (c counting) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return accepted, err
}

// TestSharedConnections verifies that Clients reuse each other's connections. A request without a response
// delays no other request, and a Client that closes ends only its own requests.
func TestSharedConnections(t *testing.T) {
	var accepted atomic.Int32
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, faulty), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return counting{l, &accepted}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	shared := &Shared{}
	clients := make([]*Client, 10)
	for n := range clients {
		clients[n] = newClient(t, cluster.ListenAddrs()[0], func(o *Options) { o.Shared, o.RequestTimeout = shared, patience })
		put(t, clients[n], faulty, 0, record("a", "1"))
	}
	// The Clients need one connection for metadata and one for requests. kafka-go opens another one if a
	// request starts before the last connection is back in the pool. Without sharing, each Client has at
	// least one connection.
	if got := int(accepted.Load()); got >= len(clients) {
		t.Errorf("%d connections of %d clients", got, len(clients))
	}

	held, release := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if requests.Add(1) <= 2 {
			held <- struct{}{}
			cluster.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	results := make([]chan error, 2)
	for n := range results {
		results[n] = make(chan error, 1)
		go func() {
			_, err := clients[n].Produce(within(t), faulty, 0, one(t))
			results[n] <- err
		}()
		<-held
	}
	put(t, clients[2], faulty, 0, record("a", "1"))
	if err := clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-results[0]; !errors.Is(err, context.Canceled) || failure.KindOf(err) != failure.Retry {
		t.Errorf("the request of a closed client ended with %v", err)
	}
	_, err = clients[0].Produce(within(t), faulty, 0, one(t))
	wantError(t, err, failure.Never, "closed")
	close(release)
	if err := <-results[1]; err != nil {
		t.Errorf("the request of another client ended with %v", err)
	}

	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(clients[0].connections()); got != 0 {
		t.Errorf("%d connections after the last client closed", got)
	}
	put(t, newClient(t, cluster.ListenAddrs()[0], func(o *Options) { o.Shared = shared }), faulty, 0, record("a", "1"))
}
