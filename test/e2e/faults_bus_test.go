package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// plantOnNATS plants faults of a stream, of its server, and of other users of the stream.
func (x *faultTable) plantOnNATS(t *testing.T) {
	bus := natstest.StartProcess(t, `
accounts: {
  A: {
    jetstream: enabled
    users: [
      {user: forwarder, password: right}
      {user: little, password: right, permissions: {publish: {allow: [">"], deny: ["$JS.API.STREAM.CREATE.>"]}}}
    ]
  }
}`)
	nc, err := natsgo.Connect(bus.URL, natsgo.UserInfo("forwarder", "right"), natsgo.MaxReconnects(-1), natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	in := "-n=" + namespace
	settings := map[string]string{
		"RESOURCES": "configmaps", "NAMESPACES": namespace, "CHECKPOINT_REFRESH": "1s", "NATS_USER": "forwarder", "NATS_PASSWORD_FILE": written(t, "right"),
	}
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, settings)
	u.create(configMaps, namespace, configMap("a", "1"))
	f.start().idle()
	x.named(f, "the bus is a single server", "num_replicas=1 (KUBERELAY): one server without a cluster", "status")
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	change := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		poll.Try(t, "the stream is changed", func(ctx context.Context) error {
			info, err := stream.Info(ctx)
			if err != nil {
				return err
			}
			change(&info.Config)
			_, err = js.UpdateStream(ctx, info.Config)
			return err
		})
	}

	if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "stopped", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	x.named(f, "a consumer is stopped", "the consumer stopped has not received it", "trace", "cm/a", in, "--consumer=stopped")
	change(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4096 })
	u.create(configMaps, namespace, configMap("large", strings.Repeat("x", 10_000)))
	x.named(f, "an object is too large", "its metadata only: it is too large for the bus", "trace", "cm/large", in)
	change(func(c *jetstream.StreamConfig) { c.MaxMsgSize, c.MaxBytes = -1, 1 })
	u.label(configMaps, namespace, "a", "full")
	x.named(f, "the stream is full", "objects of 1 resource cannot be published, configmaps", "status")
	x.named(f, "the stream is full, by the stream", "the stream is full: ", "check")
	change(func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
	f.idle()

	foreign := natsgo.NewMsg(subject(configMaps, namespace, "a"))
	foreign.Data = []byte("{}")
	if _, err := nc.RequestMsgWithContext(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	x.named(f, "somebody else writes to the stream", "events that another writer published", "check")
	f.stop()
	f.start().idle() // until this restart, the finding about the object that is too large remains
	bus.Freeze()
	x.named(f, "the bus is frozen", "the server does not respond", "status")
	bus.Thaw()
	f.well()
	bus.Kill()
	x.named(f, "the bus is unavailable", "bus unavailable for ", "status")
	bus.Start()
	f.well()
	f.stop()

	wrong := merged(settings, map[string]string{"NATS_PASSWORD_FILE": written(t, "old")})
	x.named(newForwarder(t, cp.Kubeconfig(), bus.URL, wrong), "the credentials of the bus are no longer valid", "KUBERELAY_NATS_PASSWORD_FILE", "check", "--pre")
	_, cert, key := tlstest.NewCA(t).ExpiresSoon("forwarder")
	x.named(newForwarder(t, cp.Kubeconfig(), bus.URL, merged(settings, map[string]string{"LISTEN_TLS_CERT_FILE": cert, "LISTEN_TLS_KEY_FILE": key})),
		"a certificate expires soon", "KUBERELAY_LISTEN_TLS_CERT_FILE expires at ", "check", "--pre")

	f = newForwarder(t, cp.Kubeconfig(), bus.URL, merged(settings, map[string]string{"NATS_USER": "little"}))
	f.start().idle()
	if err := js.DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	x.named(f, "the stream is deleted", "the stream KUBERELAY does not exist", "check")
	x.named(f, "the stream is deleted, by the forwarder", `stream "KUBERELAY" does not exist, and cannot be created`, "status")
	f.kill()

	f = newForwarder(t, cp.Kubeconfig(), bus.URL, settings)
	f.start().idle()
	f.stop()
	claim, err := stream.GetLastMsgForSubject(t.Context(), "kuberelay."+clusterName+"._control.cluster._.claimed")
	if err != nil {
		t.Fatal(err)
	}
	other := natsgo.NewMsg(claim.Subject)
	other.Header, other.Data = claim.Header, []byte(`{"uid":"11111111-1111-1111-1111-111111111111","claimed":"2026-01-01T00:00:00Z","epoch":0}`)
	other.Header.Del("Nats-Expected-Last-Subject-Sequence")
	if _, err := nc.RequestMsgWithContext(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	x.named(f, "another cluster has the name", "the name "+clusterName+" belongs to another cluster on this bus", "check")
}

// plantOnKafka plants faults of topics and of other writers to them.
func (x *faultTable) plantOnKafka(t *testing.T) {
	const name = "faults"
	broker, as := guardedBroker(t, name)
	admin := kafkabrokertest.Client(t, broker.Addr())
	cp := cluster.ControlPlane(t)
	namespace := quietNamespace(t, newUser(t, cp))
	f := newForwarder(t, cp.Kubeconfig(), "", as("forwarder", "w-password", namespace))
	f.start().idle()
	x.named(f, "the bus is one broker", "replication factor 1 (faults, faults.checkpoint): there is one broker", "status")
	x.named(newForwarder(t, cp.Kubeconfig(), "", as("reader", "r-password", namespace)), "an ACL of a topic is missing", "the user lacks permissions on topic "+name, "check", "--pre")

	rival := newForwarder(t, cp.Kubeconfig(), "", as("forwarder", "w-password", namespace))
	if err := rival.Start("POD_NAME=rival"); err != nil {
		t.Fatal(err)
	}
	poll.Try(t, "the first forwarder has ended", func(context.Context) error {
		if f.Running() {
			return errors.New("it runs")
		}
		return nil
	})
	x.named(f, "another forwarder has taken over the topics", "rival took over the topics", "check")
	rival.idle()
	rival.stop()

	alter(t, admin, name, "cleanup.policy", "delete")
	x.named(f, "a topic has a wrong cleanup policy", "cleanup.policy", "check", "--pre")
	alter(t, admin, name, "cleanup.policy", "compact")
	f.start().idle()
	broker.Kill()
	x.named(f, "the brokers are unavailable", "bus unavailable for ", "status")
}

// alter changes a topic's setting.
func alter(t *testing.T, admin *kafkago.Client, topic, setting, value string) {
	t.Helper()
	poll.Try(t, topic+" has "+setting+"="+value, func(ctx context.Context) error {
		response, err := admin.IncrementalAlterConfigs(ctx, &kafkago.IncrementalAlterConfigsRequest{Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: setting, Value: value, ConfigOperation: kafkago.ConfigOperationSet}},
		}}})
		if err != nil {
			return err
		}
		for _, r := range response.Resources {
			err = errors.Join(err, r.Error)
		}
		return err
	})
}
