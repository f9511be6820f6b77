package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/harness"
)

// hub is the bus of many clusters. It has three servers or brokers, with three replicas of everything.
type hub interface {
	env(cluster int) []string // variables for the forwarder of a cluster
	pids() []int              // process IDs of the servers or brokers
	dirs() []string           // directories with their files
	close() error
}

var _, _ hub = (*natsHub)(nil), (*kafkaHub)(nil)

// kafkaHub has three brokers. One of them is also the controller.
type kafkaHub struct{ *kafkaCluster }

func (s *stage) startKafkaHub(ctx context.Context) (hub, error) {
	c, err := s.startKafka(ctx, hubNodes)
	if err != nil {
		return nil, err
	}
	return &kafkaHub{c}, nil
}

func (h *kafkaHub) env(int) []string {
	return []string{"KUBERELAY_SINK=kafka", "KUBERELAY_KAFKA_BROKERS=" + strings.Join(h.addresses(), ","), "KUBERELAY_KAFKA_REPLICATION=" + strconv.Itoa(hubNodes)}
}

func (h *kafkaHub) pids() (all []int) {
	for _, b := range h.brokers {
		all = append(all, b.PID())
	}
	return all
}

func (h *kafkaHub) dirs() (all []string) {
	for _, b := range h.brokers {
		all = append(all, b.Data())
	}
	return all
}

// natsHub has three servers, and a process with a leaf node for each cluster. Each leaf node has its own
// JetStream domain.
type natsHub struct {
	servers []*process
	leaves  *process
	urls    []string // URLs of the leaf nodes
	dir     string
}

func (s *stage) startNATSHub(ctx context.Context) (hub, error) {
	h := &natsHub{}
	var err error
	if h.dir, err = os.MkdirTemp(s.dir, "hub-"); err != nil {
		return nil, err
	}
	addresses := make([]string, 3*hubNodes+s.clusters)
	for i := range addresses {
		if addresses[i], err = harness.FreePort(); err != nil {
			return nil, err
		}
	}
	clients, routes, leafPorts, leaves := addresses[:hubNodes], addresses[hubNodes:2*hubNodes], addresses[2*hubNodes:3*hubNodes], addresses[3*hubNodes:]
	for i := range hubNodes {
		p, err := s.start("hub", nil, s.self, "hub", strconv.Itoa(i), filepath.Join(h.dir, strconv.Itoa(i)), clients[i], routes[i], leafPorts[i], strings.Join(routes, ","))
		if err != nil {
			return h, err
		}
		h.servers = append(h.servers, p)
	}
	if h.leaves, err = s.start("leaves", nil, s.self, "leaves", filepath.Join(h.dir, "leaves"), strings.Join(leafPorts, ","), strings.Join(leaves, ",")); err != nil {
		return h, err
	}
	for _, address := range leaves {
		h.urls = append(h.urls, "nats://"+address)
	}
	return h, h.leaves.every(ctx, hubPoll, func() (bool, error) { return h.usable(ctx), nil })
}

// usable reports whether a client can create a stream with three replicas through each leaf node.
func (h *natsHub) usable(ctx context.Context) bool {
	return !slices.ContainsFunc(h.urls, func(leaf string) bool {
		conn, err := nats.Connect(leaf)
		if err != nil {
			return true
		}
		defer conn.Close()
		js, err := jetstream.NewWithDomain(conn, hubDomain)
		if err == nil {
			_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Replicas: hubNodes})
		}
		if err == nil {
			err = js.DeleteStream(ctx, "PROBE")
		}
		return err != nil
	})
}

func (h *natsHub) env(cluster int) []string {
	return []string{"KUBERELAY_NATS_URL=" + h.urls[cluster], "KUBERELAY_NATS_JETSTREAM_DOMAIN=" + hubDomain, "KUBERELAY_NATS_REPLICAS=" + strconv.Itoa(hubNodes)}
}

func (h *natsHub) pids() (all []int) {
	for _, p := range h.servers {
		all = append(all, p.PID())
	}
	return all
}

func (h *natsHub) dirs() (all []string) {
	for i := range h.servers {
		all = append(all, filepath.Join(h.dir, strconv.Itoa(i)))
	}
	return all
}

func (h *natsHub) close() (err error) {
	for _, p := range append(h.servers, h.leaves) {
		if p != nil {
			err = errors.Join(err, p.Kill())
		}
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}
