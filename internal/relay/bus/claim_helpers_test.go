package bus

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
	"github.com/kuberelay/kuberelay/internal/sinks"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// testLimit bounds every wait. Only a failing test reaches it.
const testLimit = 5 * time.Minute

// claimTest is a bus on which clusters claim a name, usually prod.
type claimTest struct {
	t    *testing.T
	name string
	cfg  config.Config
}

func onNATS(t *testing.T) claimTest {
	cfg := config.Config{}
	cfg.Event.Sink, cfg.Event.ContentMode = config.SinkNATS, "binary"
	cfg.NATS.URLs = []string{natstest.Start(t).URL}
	return claimTest{t, "prod", cfg}
}

func onKafka(t *testing.T) claimTest {
	cfg := config.Config{}
	cfg.Event.Sink, cfg.Event.ContentMode = config.SinkKafka, "binary"
	cfg.Kafka.Brokers, cfg.Kafka.Topic = []string{kafkabrokertest.Shared(t).Addr()}, kafkabrokertest.TopicName(t.Name())
	cfg.Kafka.Compression, cfg.Kafka.Idempotent = "none", true
	return claimTest{t, "prod", cfg}
}

func onBoth(t *testing.T, test func(*testing.T, claimTest)) {
	t.Run("nats", func(t *testing.T) { test(t, onNATS(t)) })
	t.Run("kafka", func(t *testing.T) { test(t, onKafka(t)) })
}

// claimant is the part of one cluster's forwarder that opens the bus and claims the name.
type claimant struct {
	t     *testing.T
	name  string
	claim *claim // nil on stdout
	bus   *Bus
	epoch uint16
}

// open opens the bus for the cluster with the given UID. Only a failing test reaches the deadline.
func (c claimTest) open(uid, replaces string) (*claimant, error) {
	c.t.Helper()
	cfg, log := c.cfg, slog.New(slog.DiscardHandler)
	cfg.Event.ClusterReplaces = replaces
	ctx, cancel := context.WithTimeout(c.t.Context(), testLimit)
	defer cancel()
	b, err := Open(ctx, Config{
		Settings: cfg, Cluster: c.name, UID: uid, Writer: "test", WaitFor: func(func() error) {}, Out: stdout.NewOutput(io.Discard), Logger: log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return nil, err
	}
	c.t.Cleanup(func() { _ = b.Close() })
	return &claimant{t: c.t, name: c.name, claim: b.claim, bus: b}, nil
}

func (c *claimant) settle() (err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), testLimit)
	defer cancel()
	known := ledger.New().NewTerm()
	if _, err := checkpoint.New(known).Load(ctx, c.bus); err != nil {
		return err
	}
	c.epoch, err = c.bus.Acquire(ctx, known)
	return err
}

func (c claimTest) settle(uid, replaces string) (*claimant, error) {
	c.t.Helper()
	claimant, err := c.open(uid, replaces)
	if err == nil {
		err = claimant.settle()
	}
	return claimant, err
}

func (c claimTest) settled(uid, replaces string) *claimant {
	c.t.Helper()
	claimant, err := c.settle(uid, replaces)
	if err != nil {
		c.t.Fatalf("%s cannot claim the name: %v", uid, err)
	}
	return claimant
}

// last returns the last claim on the bus.
func (c *claimant) last() event.Claim {
	c.t.Helper()
	claim, err := c.bus.LastClaim(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return claim
}

// send publishes the creation of an object and returns the result.
func (c *claimant) send(name string) error {
	c.t.Helper()
	m, err := event.Builder{Cluster: c.name}.Message(configMapChange(c.name, name))
	if err != nil {
		c.t.Fatal(err)
	}
	result := make(chan error, 1)
	c.bus.Publish(c.t.Context(), m, func(_ uint64, err error) { result <- err })
	return <-result
}

// remove publishes the deletion of an object and returns the result.
func (c *claimant) remove(name string) error {
	c.t.Helper()
	change := configMapChange(c.name, name)
	change.Type = event.Deleted
	m, err := event.Builder{Cluster: c.name}.Message(change)
	if err != nil {
		return err
	}
	m.Expected = c.acked()[name].Position
	result := make(chan error, 1)
	c.bus.Publish(c.t.Context(), m, func(_ uint64, err error) { result <- err })
	return <-result
}

// configMapChange returns the creation of an object of a cluster.
func configMapChange(cluster, name string) event.Change {
	r := event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	return event.Change{
		Type: event.Created, Cause: event.CauseWatch, Key: r.Key("default", name), Resource: r, Observed: time.Now(),
		Object: &event.Object{APIVersion: "v1", Kind: r.Kind, Namespace: "default", Name: name, UID: types.UID(name + "-of-" + cluster), ResourceVersion: "7", Body: event.JSON([]byte(`{}`))},
	}
}

// acked returns the acknowledged state of each object of the cluster, by name.
func (c *claimant) acked() map[string]event.Acked {
	c.t.Helper()
	all := map[string]event.Acked{}
	err := c.bus.Load(c.t.Context(), func(k event.Key, a event.Acked) error {
		if a.UID != "" {
			all[k.Name] = a
		} else {
			delete(all, k.Name)
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// claimsOnKafka returns all claims of the name, as a subscriber sees them.
func (c claimTest) claimsOnKafka() []string {
	c.t.Helper()
	b, err := reader.Open(sinks.KafkaReader(c.cfg))
	if err != nil {
		c.t.Fatal(err)
	}
	defer b.Close()
	var all []string
	ctx, cancel := context.WithTimeout(c.t.Context(), testLimit)
	defer cancel()
	end := errors.New("the end of the bus")
	o := publish.SubscribeOptions{From: publish.FromStart, CaughtUp: func(publish.Cursor) error { return end }}
	err = b.Subscribe(ctx, o, func(m *event.Message, _ publish.Delivery) error {
		if m.IsClaim() {
			claim, err := event.ClaimFrom(m)
			all = append(all, claim.UID)
			return err
		}
		return nil
	})
	if !errors.Is(err, end) {
		c.t.Fatal(err)
	}
	return all
}
