package natstest

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster is a JetStream cluster of servers that run in this process.
type Cluster struct {
	// URLs are the client URLs, one for each server.
	URLs []string

	t       testing.TB
	servers []*server.Server
}

// StartCluster starts a cluster with a number of servers and waits until each of them can hold a
// replica of a stream. The cluster ends with the test.
func StartCluster(t testing.TB, size int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var routes []*url.URL
	var ports []int
	for range size {
		port := FreePort(t)
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
	}
	for i, port := range ports {
		client := FreePort(t)
		ns, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("node-%d", i), Host: "127.0.0.1", Port: client,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}, Routes: routes,
			JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			AuthTimeout: startLimit.Seconds(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ns.Start()
		t.Cleanup(func() { stop(ns) })
		c.servers = append(c.servers, ns)
		c.URLs = append(c.URLs, "nats://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(client)))
	}
	for _, ns := range c.servers {
		if !ns.ReadyForConnections(startLimit) {
			t.Fatalf("the NATS server %s is not ready", ns.Name())
		}
	}
	c.await("a leader that has heard of every server", func() bool {
		for _, ns := range c.servers {
			if ns.JetStreamIsLeader() {
				return len(ns.JetStreamClusterPeers()) == size
			}
		}
		return false
	})
	return c
}

// Stop stops the server at index i of URLs permanently.
func (c *Cluster) Stop(i int) { stop(c.servers[i]) }

// StopNamed stops the server with the given name permanently.
func (c *Cluster) StopNamed(name string) {
	for _, ns := range c.servers {
		if ns.Name() == name {
			stop(ns)
		}
	}
}

func stop(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

// HoldBack simulates lagging replicas. Every replica of the stream except the leader still stores the
// entries of the Raft log and acknowledges them to the leader, but doesn't apply them to its copy of
// the stream. The returned function ends the lag.
func (c *Cluster) HoldBack(stream string) (release func()) {
	c.t.Helper()
	var leader server.RaftNode
	var followers []server.RaftNode
	c.await("a replica on every server", func() bool {
		leader, followers = nil, nil
		for _, ns := range c.servers {
			account := ns.GlobalAccount()
			replica, err := lookupStream(account, stream)
			switch {
			case err != nil:
			case account.JetStreamIsStreamLeader(stream):
				leader = raftNode(replica)
			default:
				followers = append(followers, raftNode(replica))
			}
		}
		return leader != nil && len(followers) == len(c.servers)-1
	})
	_, _, stored := leader.Progress()
	for _, node := range followers {
		c.await("followers that have every message of the leader", func() bool {
			_, _, applied := node.Progress()
			return applied >= stored
		})
		if err := node.PauseApply(); err != nil {
			c.t.Fatal(err)
		}
	}
	return func() {
		for _, node := range followers {
			node.ResumeApply()
		}
	}
}

func (c *Cluster) await(what string, holds func() bool) {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(startLimit); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("the NATS cluster has not reached this state within %s: %s", startLimit, what)
		}
	}
}

// replica stands for the server's unexported stream type. This package only passes pointers to it.
type replica struct{ _ byte }

// The server has no API to hold back a replica, so the following declarations link to its unexported
// methods.

//go:linkname lookupStream github.com/nats-io/nats-server/v2/server.(*Account).lookupStream
func lookupStream(account *server.Account, name string) (*replica, error)

//go:linkname raftNode github.com/nats-io/nats-server/v2/server.(*stream).raftNode
func raftNode(stream *replica) server.RaftNode
