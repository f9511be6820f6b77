package replica_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
)

// startBus starts a NATS server with a stream that has a pod.
func startBus() (url string, stop func()) {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "replica")
	check(err)
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	check(err)
	ns.Start()
	if !ns.ReadyForConnections(time.Minute) {
		log.Fatal("the NATS server is not ready")
	}
	nc, err := natsgo.Connect(ns.ClientURL(), natsgo.Timeout(time.Minute))
	check(err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	check(err)
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "KUBERELAY", Subjects: []string{"kuberelay.>"}})
	check(err)

	pods := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	m, err := event.Builder{Cluster: "prod"}.Message(event.Change{
		Type: event.Created, Cause: event.CauseWatch, Key: pods.Key("shop", "web-0"), Resource: pods, Observed: time.Now(),
		Object: &event.Object{
			APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "u", ResourceVersion: "7",
			Body: event.JSON(fmt.Appendf(nil,
				`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"7"},"status":{"phase":"Running"}}`)),
		},
	})
	check(err)
	msg, err := binding.Encode(m, false, binding.NewHeader())
	check(err)
	msg.Subject = subject.Object("kuberelay", "prod", m.Key)
	_, err = js.PublishMsg(context.Background(), msg)
	check(err)
	return ns.ClientURL(), func() {
		ns.Shutdown()
		ns.WaitForShutdown()
		check(os.RemoveAll(dir))
	}
}
