package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // heap profiles, at the same path as the forwarder's
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// milestones records the progress of a contender that is a role of this program. The contender's /readyz
// returns the milestones when it has reached all of them.
type milestones struct {
	Synced, Acked time.Time
	Bytes         int64 // size of the watch
}

// runRole runs this program in a role, as in "bench floor ...".
func runRole(ctx context.Context, role string, args []string) error {
	switch role {
	case "floor":
		return runFloor(ctx, args[0], args[1])
	case "informer":
		return runInformer(ctx, args[0], args[1], args[2])
	case "nats":
		return runNATS(ctx, args[0], args[1])
	case "hub":
		return runHub(ctx, args[0], args[1], args[2], args[3], args[4], args[5])
	case "leaves":
		return runLeaves(ctx, args[0], strings.Split(args[1], ","), strings.Split(args[2], ","))
	}
	return fmt.Errorf("no role %q: set BENCH, PODS, ROUNDS, CONTENDERS and OUT in the environment", role)
}

// serve serves /metrics and /readyz, like the forwarder, until ctx ends.
func serve(ctx context.Context, m milestones) error {
	http.Handle("/metrics", promhttp.Handler())
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(m) })
	server := &http.Server{Addr: os.Getenv(listenAddr), ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // the process ends anyway
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// runFloor does the least possible work: it reads a watch and discards it. An empty namespace means all
// namespaces.
func runFloor(ctx context.Context, kubeconfig, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	var m milestones
	done := errors.New("the initial events are complete")
	err = readWatch(ctx, config, "pods", namespace, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", func(frame []byte) error {
		m.Bytes += int64(len(frame))
		if isEndOfInitialEvents(frame) {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		return err
	}
	m.Acked = time.Now()
	m.Synced = m.Acked
	return serve(ctx, m)
}

// isEndOfInitialEvents detects the bookmark after the initial events (KEP-3157).
func isEndOfInitialEvents(frame []byte) bool {
	return bytes.HasPrefix(frame, []byte(`{"type":"BOOKMARK"`)) && bytes.Contains(frame, []byte(`"k8s.io/initial-events-end":"true"`))
}

// runInformer is the usual approach. It runs a dynamic informer whose handler publishes the object and
// waits for the acknowledgement. It keeps no state, and misses deletes that happen while it is down.
func runInformer(ctx context.Context, kubeconfig, namespace, url string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "PLAIN", Subjects: []string{"plain.>"}}); err != nil {
		return err
	}
	failing, fail := context.WithCancelCause(ctx)
	publish := func(object any) {
		o := object.(*unstructured.Unstructured)
		data, err := json.Marshal(o)
		if err == nil {
			_, err = js.Publish(failing, fmt.Sprintf("plain.pods.%s.%s", o.GetNamespace(), o.GetName()), data)
		}
		if err != nil {
			fail(err)
		}
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	defer factory.Shutdown()
	defer fail(nil) // ends the informer first, because Shutdown waits for it
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer()
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: publish, UpdateFunc: func(_, o any) { publish(o) }})
	if err != nil {
		return err
	}
	factory.Start(failing.Done())
	var m milestones
	cache.WaitForCacheSync(failing.Done(), informer.HasSynced)
	m.Synced = time.Now()
	select {
	case <-handled.HasSyncedChecker().Done():
	case <-failing.Done():
		return context.Cause(failing)
	}
	m.Acked = time.Now()
	return serve(ctx, m)
}

// runNATS runs a NATS server. A separate process makes its cost measurable.
func runNATS(ctx context.Context, address, dir string) error {
	o := serverOptions(dir)
	var err error
	if o.Host, o.Port, err = split(address); err != nil {
		return err
	}
	return runServers(ctx, o)
}

func serverOptions(dir string) *server.Options {
	return &server.Options{JetStream: true, StoreDir: dir, MaxPayload: 8 << 20, NoSigs: true, NoLog: true}
}

func split(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}

// runServers runs NATS servers until ctx ends.
func runServers(ctx context.Context, all ...*server.Options) error {
	var servers []*server.Server
	for _, o := range all {
		ns, err := server.NewServer(o)
		if err != nil {
			return err // the process ends
		}
		ns.Start()
		servers = append(servers, ns)
	}
	<-ctx.Done()
	for _, ns := range servers {
		ns.Shutdown()
	}
	for _, ns := range servers {
		ns.WaitForShutdown()
	}
	return nil
}

// hubDomain is the JetStream domain of the hub.
const hubDomain = "hub"

// runHub runs one server of the hub. The server listens for clients, for the other servers and for leaf
// nodes.
func runHub(ctx context.Context, name, dir, clients, route, leaf, routes string) (err error) {
	o := serverOptions(dir)
	o.ServerName, o.JetStreamDomain, o.Cluster.Name, o.Routes = "hub-"+name, hubDomain, "hub", server.RoutesFromStr("nats://"+strings.ReplaceAll(routes, ",", ",nats://"))
	for _, listener := range []struct {
		address string
		host    *string
		port    *int
	}{{clients, &o.Host, &o.Port}, {route, &o.Cluster.Host, &o.Cluster.Port}, {leaf, &o.LeafNode.Host, &o.LeafNode.Port}} {
		if *listener.host, *listener.port, err = split(listener.address); err != nil {
			return err
		}
	}
	return runServers(ctx, o)
}

// runLeaves runs a leaf node at each address. All leaf nodes connect to the hub.
func runLeaves(ctx context.Context, dir string, hub, addresses []string) (err error) {
	remote := &server.RemoteLeafOpts{}
	for _, address := range hub {
		remote.URLs = append(remote.URLs, &url.URL{Scheme: "nats-leaf", Host: address})
	}
	var all []*server.Options
	for i, address := range addresses {
		o := serverOptions(filepath.Join(dir, strconv.Itoa(i)))
		o.ServerName, o.JetStreamDomain, o.LeafNode.Remotes = fmt.Sprintf("leaf-%d", i), fmt.Sprintf("leaf-%d", i), []*server.RemoteLeafOpts{remote}
		if o.Host, o.Port, err = split(address); err != nil {
			return err
		}
		all = append(all, o)
	}
	return runServers(ctx, all...)
}
