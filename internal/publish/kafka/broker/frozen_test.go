package broker

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
)

// freezing is the listener of a broker that a test can freeze. A frozen broker keeps its
// connections and accepts new ones, but does not respond.
type freezing struct {
	net.Listener

	mu     sync.Mutex
	change sync.Cond
	frozen bool
}

func listenFreezing(network, address string) (net.Listener, *freezing, error) {
	l, err := net.Listen(network, address)
	f := &freezing{Listener: l}
	f.change.L = &f.mu
	return f, f, err
}

func (f *freezing) set(frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = frozen
	f.change.Broadcast()
}

func (f *freezing) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	return freezingConn{c, f}, err
}

type freezingConn struct {
	net.Conn

	listener *freezing
}

func (c freezingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	for c.listener.frozen {
		c.listener.change.Wait()
	}
	return n, err
}

// TestABrokerThatHangsDelaysNoOther verifies that a hanging broker does not delay writes to
// another broker. While the hanging broker does not respond to a metadata request, the client
// keeps its metadata and its connections to the other broker. An earlier version dropped both
// first and could not send any request until a broker responded.
func TestABrokerThatHangsDelaysNoOther(t *testing.T) {
	brokers := map[string]*freezing{}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, faulty), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, f, err := listenFreezing(network, address)
		if err == nil {
			brokers[l.Addr().String()] = f
		}
		return l, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	asked := cluster.ListenAddrs()[1-cluster.LeaderFor(faulty, 0)] // the client's only bootstrap broker
	c := newClient(t, asked)
	c.transport.pool.Load().MetadataTTL = time.Hour
	put(t, c, faulty, 0, record("a", "1"))

	brokers[asked].set(true)
	defer brokers[asked].set(false)
	for range 2 {
		c.transport.renew(time.Now(), 0) // the client also does this after a request timed out
		put(t, c, faulty, 0, record("a", "1"))
	}
	if o, err := c.Offsets(within(t), faulty); err != nil || o.End[0] != 3 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestALoginThatHangs verifies that a connection closes if the broker does not finish its SASL login,
// and that the client connects again. kafka-go gives the login no deadline.
func TestALoginThatHangs(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, faulty), kfake.EnableSASL(), kfake.Superuser(login.Plain, "alice", firstPassword))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	var hanging atomic.Bool
	held, release := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(release) })
	hanging.Store(true)
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if hanging.Load() {
			select {
			case held <- struct{}{}:
			default:
			}
			cluster.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	c := newClient(t, cluster.ListenAddrs()[0], func(o *Options) {
		o.SASLMechanism, o.User, o.PasswordFile, o.RequestTimeout = login.Plain, "alice", writeFile(t, "password", firstPassword), time.Second
	})
	produced := make(chan error, 1)
	go func() {
		_, err := c.Produce(within(t), faulty, 0, one(t))
		produced <- err
	}()
	<-held
	hung := c.connections()
	wantError(t, <-produced, failure.Retry)
	hanging.Store(false)
	c.awaitClosed(t, hung)
	put(t, c, faulty, 0, record("a", "1"))
}
