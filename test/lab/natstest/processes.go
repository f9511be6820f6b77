//go:build unix

package natstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// Processes is a JetStream cluster of servers, each in its own process. The servers connect to each
// other through proxies, so a test can isolate servers. Each [Process] adds its own faults. An election
// takes a quarter of the usual time.
type Processes struct {
	Servers []*Process

	t     testing.TB
	links map[link]*faultproxy.Proxy
}

// A link is the connection that server from opens to server to. Each pair of servers opens two
// connections and keeps one of them.
type link struct{ from, to int }

// StartProcesses starts a cluster and waits until each server can hold a replica of a stream. The
// cluster ends with the test.
func StartProcesses(t testing.TB, size int) *Processes {
	t.Helper()
	return StartFormerProcesses(t, size, "")
}

// StartFormerProcesses is [StartProcesses] for servers of an earlier release. The command receives the
// configuration file as its argument and otherwise behaves like hack/controlplane/natsserver. See
// [Process.Upgrade].
func StartFormerProcesses(t testing.TB, size int, command string) *Processes {
	t.Helper()
	c := &Processes{t: t, links: map[link]*faultproxy.Proxy{}}
	// Servers tell each other the addresses of the others. They advertise this unreachable address, so
	// that no route bypasses the proxies.
	nowhere := faultproxy.Start(t, "127.0.0.1:1")
	nowhere.Refuse()
	listen := make([]string, size)
	for i := range listen {
		listen[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t)))
	}
	for i := range size {
		var routes []string
		for j := range size {
			if j == i {
				continue
			}
			p := faultproxy.Start(t, listen[j])
			c.links[link{i, j}] = p
			routes = append(routes, strconv.Quote("nats://"+p.Addr()))
		}
		c.Servers = append(c.Servers, startProcess(t, command, fmt.Sprintf(
			"server_name: %s\ncluster: {name: test, listen: %q, advertise: %q, no_advertise: true, routes: [%s]}",
			serverName(i), listen[i], nowhere.Addr(), strings.Join(routes, ", "))))
	}
	for deadline := time.Now().Add(startLimit); !c.complete(); time.Sleep(readyPoll) {
		if time.Now().After(deadline) {
			t.Fatalf("the NATS cluster has not found its %d servers within %s", size, startLimit)
		}
	}
	return c
}

const readyPoll = 20 * time.Millisecond

func serverName(i int) string { return fmt.Sprintf("server-%d", i) }

// complete reports whether the cluster has a leader that has heard of every server.
func (c *Processes) complete() bool {
	for _, p := range c.Servers {
		var of server.JSInfo
		p.ask("jsz", &of)
		if of.Meta == nil || of.Meta.Leader == "" || of.Meta.Size != len(c.Servers) {
			return false
		}
		if of.Meta.Leader == of.Meta.Peer && len(of.Meta.Replicas) != len(c.Servers)-1 {
			return false
		}
	}
	return true
}

// URLs returns the client URLs, one for each server.
func (c *Processes) URLs() (urls []string) {
	for _, p := range c.Servers {
		urls = append(urls, p.URL)
	}
	return urls
}

// CutOff closes the connections between server i and the others, and refuses new ones. If silently is
// true, the connections stay open, but no bytes pass.
func (c *Processes) CutOff(i int, silently bool) {
	for l, p := range c.links {
		switch {
		case l.from != i && l.to != i:
		case silently:
			p.Freeze()
		default:
			p.Refuse()
		}
	}
}

// Part cuts two servers off from each other, but not from the rest. It closes their connections and
// refuses new ones.
func (c *Processes) Part(i, j int) {
	c.links[link{i, j}].Refuse()
	c.links[link{j, i}].Refuse()
}

// Join ends the effects of CutOff and Part on all servers.
func (c *Processes) Join() {
	for _, p := range c.links {
		p.Break()
		p.Pass()
	}
}

// ErrNoLeader is the error of [Processes.Leader] while a stream has no leader.
var ErrNoLeader = errors.New("the stream has no leader")

// Leader asks the cluster for the leader of a stream and returns the index of the leader's server. A
// leader that was cut off may not have noticed it yet.
func (c *Processes) Leader(ctx context.Context, js jetstream.JetStream, stream string) (int, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	of := s.CachedInfo().Cluster
	if of == nil || of.Leader == "" {
		return 0, ErrNoLeader
	}
	return c.named(of.Leader)
}

// ClusterLeader returns the index of the server that leads the cluster, according to the server by. The
// cluster's leader places streams and consumers.
func (c *Processes) ClusterLeader(by int) (int, error) {
	var of server.JSInfo
	c.Servers[by].ask("jsz", &of)
	if of.Meta == nil {
		return 0, ErrNoLeader
	}
	return c.named(of.Meta.Leader)
}

func (c *Processes) named(name string) (int, error) {
	for i := range c.Servers {
		if name == serverName(i) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the leader %q is not a server of the cluster", name)
}

// StepDown makes the leader of a stream step down. Another replica becomes the leader.
func StepDown(ctx context.Context, nc *nats.Conn, stream string) error {
	answer, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	if err != nil {
		return err
	}
	var body struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &body); err != nil {
		return err
	}
	if body.Error != nil {
		return body.Error
	}
	return nil
}

// hurryElections makes the elections of a server four times as fast as usual, as the server's own tests
// do. Every server of a cluster must call it.
func hurryElections() {
	for _, d := range []*time.Duration{&minElectionTimeout, &maxElectionTimeout, &hbInterval, &lostQuorumInterval, &lostQuorumCheck} {
		*d /= 4
	}
}

// The server has no options for these intervals, so the following declarations link to its unexported
// variables.

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
var hbInterval time.Duration

//go:linkname lostQuorumInterval github.com/nats-io/nats-server/v2/server.lostQuorumInterval
var lostQuorumInterval time.Duration

//go:linkname lostQuorumCheck github.com/nats-io/nats-server/v2/server.lostQuorumCheck
var lostQuorumCheck time.Duration
