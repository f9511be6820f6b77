// Package kafkacluster starts a cluster of real Kafka brokers for a test. The cluster has one
// controller and several brokers, each in its own process. Every connection between two brokers, or
// from a broker to the controller, passes through a fault proxy.
//
// It guarantees:
//
//   - When Start returns, all brokers are in the cluster. Topics have a replica on every broker,
//     and min.insync.replicas is one less than the number of brokers.
//   - A test can kill, freeze, stop and start each process. It can isolate a broker from the
//     other brokers and the controller, hold back the broker's replication, and restore its data
//     from an earlier copy. Clients still reach an isolated broker.
//   - Everything ends with the test, even if the test is killed with SIGKILL.
//
// It doesn't guarantee that the cluster is healthy after a fault: see [Cluster.AwaitInSync]. It needs
// Linux, where the loopback interface has all addresses in 127.0.0.0/8. Each broker resolves the names
// of the other nodes to its own loopback address, where its proxies listen.
package kafkacluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

// Options configure a cluster.
type Options struct {
	Size int // number of brokers, at least 3
	// Listeners are the brokers' listeners for clients, in addition to Plaintext.
	Listeners []kafkabroker.Listener
	// Advertise has the same meaning as in [kafkabroker.Options].
	Advertise func(addr string) string
	// Properties are added to the properties of every process.
	Properties map[string]string
	// Former has the same meaning as in [kafkabroker.Options].
	Former bool
	Log    io.Writer
}

// Cluster is a running cluster. Brokers are numbered from 0.
type Cluster struct {
	Controller *kafkabroker.Broker
	Brokers    []*kafkabroker.Broker

	t     testing.TB
	links map[link]*faultproxy.Proxy
	admin *kgo.Client
}

// A link is the connections from a broker to a listener of another broker or of the controller.
type link struct{ from, to int }

// toController is the value of link.to for the controller.
const toController = -1

// firstID is the node id of broker 0. The controller has node id 1.
const firstID = 2

const (
	controllerHost = "controller.kafka.test"
	logLines       = 20
)

func brokerHost(n int) string { return fmt.Sprintf("broker-%d.kafka.test", n) }

// Start starts a cluster that ends with the test.
func Start(t testing.TB, opts Options) (*Cluster, error) {
	c := &Cluster{t: t, links: map[link]*faultproxy.Proxy{}}
	t.Cleanup(c.close)
	properties := map[string]string{
		"default.replication.factor": strconv.Itoa(opts.Size), "min.insync.replicas": strconv.Itoa(opts.Size - 1),
		"transaction.state.log.replication.factor": strconv.Itoa(opts.Size), "transaction.state.log.min.isr": strconv.Itoa(opts.Size - 1),
		"broker.session.timeout.ms": "3000",
		// A replica that can't fetch soon leaves the set of in-sync replicas, and soon returns.
		"replica.lag.time.max.ms": "3000", "replica.socket.timeout.ms": "2000", "replica.fetch.wait.max.ms": "200",
		"replica.fetch.backoff.ms": "200", "reconnect.backoff.max.ms": "500",
		"auto.leader.rebalance.enable": "false", // tests move leaders
	}
	maps.Copy(properties, opts.Properties)
	start := func(o kafkabroker.Options, n int) (*kafkabroker.Broker, error) {
		o.Properties, o.Log, o.Hosts, o.Former = properties, opts.Log, hostsOf(n, opts.Size), opts.Former
		return kafkabroker.Start(t.Context(), o)
	}
	var err error
	if c.Controller, err = start(kafkabroker.Options{ControllerOnly: true, Host: controllerHost, Heap: "128m"}, toController); err != nil {
		return nil, err
	}
	for n := range opts.Size {
		if err := c.connect(n, toController, c.Controller.AddrOf(kafkabroker.Controller)); err != nil {
			return nil, err
		}
	}
	c.Brokers = make([]*kafkabroker.Broker, opts.Size)
	err = c.each(func(n int) (err error) {
		c.Brokers[n], err = start(kafkabroker.Options{
			Join: c.Controller, NodeID: firstID + n, Host: brokerHost(n), Heap: "256m", Listeners: opts.Listeners, Advertise: opts.Advertise,
		}, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	for from := range opts.Size {
		for to, b := range c.Brokers {
			if from == to {
				continue
			}
			if err := c.connect(from, to, b.AddrOf(kafkabroker.Replication)); err != nil {
				return nil, err
			}
		}
	}
	c.admin, err = kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.RequestTimeoutOverhead(requestTimeout), kgo.DialTimeout(requestTimeout), kgo.RequestRetries(0))
	return c, err
}

// hostsOf returns the addresses to which node n resolves the names of all nodes.
func hostsOf(n, size int) map[string]string {
	at := proxyHost(n)
	if n == toController {
		at = "127.0.0.1" // the controller opens no connections
	}
	hosts := map[string]string{controllerHost: at}
	for other := range size {
		hosts[brokerHost(other)] = at
	}
	if n != toController {
		hosts[brokerHost(n)] = "127.0.0.1"
	}
	return hosts
}

// proxyHost returns the address of broker n's proxies.
func proxyHost(n int) string { return fmt.Sprintf("127.0.10.%d", n+1) }

// connect starts the proxy of a link. The proxy listens on its target's port number.
func (c *Cluster) connect(from, to int, target string) error {
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	p, err := faultproxy.StartAt(c.t, net.JoinHostPort(proxyHost(from), port), target)
	if err != nil {
		return fmt.Errorf("a proxy on another address of the loopback interface, which Linux has: %w", err)
	}
	c.links[link{from, to}] = p
	return nil
}

func (c *Cluster) close() {
	if c.admin != nil {
		c.admin.Close()
	}
	var all error
	for _, b := range append(c.Brokers, c.Controller) { // the controller ends last
		if b == nil {
			continue
		}
		if c.t.Failed() {
			c.t.Logf("the log %s ends with:\n%s", b.Log(), b.LogTail(logLines))
		}
		all = errors.Join(all, b.Close())
	}
	if all != nil {
		c.t.Error(all)
	}
}

// each calls do for all brokers concurrently.
func (c *Cluster) each(do func(n int) error) error {
	var all errgroup.Group
	for n := range c.Brokers {
		all.Go(func() error { return do(n) })
	}
	return all.Wait()
}

// Addrs returns the brokers' addresses for the test's own requests, which no proxy affects.
func (c *Cluster) Addrs() []string { return c.AddrsOf(kafkabroker.Plaintext) }

// AddrsOf returns the address of a listener of each broker.
func (c *Cluster) AddrsOf(l kafkabroker.Listener) (all []string) {
	for _, b := range c.Brokers {
		all = append(all, b.AddrOf(l))
	}
	return all
}

// Kill kills all processes.
func (c *Cluster) Kill() error {
	return errors.Join(c.each(func(n int) error { return c.Brokers[n].Kill() }), c.Controller.Kill())
}

// Start starts all processes that aren't running.
func (c *Cluster) Start(ctx context.Context) error {
	if !c.Controller.Running() {
		if err := c.Controller.Start(ctx); err != nil {
			return err
		}
	}
	return c.each(func(n int) error {
		if c.Brokers[n].Running() {
			return nil
		}
		return c.Brokers[n].Start(ctx)
	})
}

// Freeze freezes all processes, which must be running.
func (c *Cluster) Freeze() error {
	return errors.Join(c.each(func(n int) error { return c.Brokers[n].Freeze() }), c.Controller.Freeze())
}

// Thaw resumes all running processes.
func (c *Cluster) Thaw() error {
	var all error
	for _, b := range append([]*kafkabroker.Broker{c.Controller}, c.Brokers...) {
		if b.Running() {
			all = errors.Join(all, b.Thaw())
		}
	}
	return all
}

// CutOff isolates a broker from the other brokers and the controller, like a network that drops all
// packets. Clients still reach the broker.
func (c *Cluster) CutOff(broker int) {
	for l, p := range c.links {
		if l.from == broker || l.to == broker {
			p.Freeze()
		}
	}
}

// HoldBack stops the replication to a broker. The broker stays in the cluster, but receives no records.
func (c *Cluster) HoldBack(broker int) {
	for l, p := range c.links {
		if l.from == broker && l.to != toController {
			p.Freeze()
		}
	}
}

// Connect ends the effects of CutOff and HoldBack on all brokers.
func (c *Cluster) Connect() {
	for _, p := range c.links {
		p.Break()
		p.Pass()
	}
}

// requestTimeout limits each of the test's own requests.
const requestTimeout = 5 * time.Second
