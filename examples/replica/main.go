// Replica keeps a table of the objects of one resource in a file. A standard client-go informer reads
// the objects from the bus of Kuberelay.
//
// The program first writes the file when the informer has the current state, and then replaces the whole
// file at each change. So the file always has a complete state, without the objects that were deleted
// while the program, the forwarder, or the bus was down. If the stream or topic is lost and recreated,
// the file keeps its rows until the forwarder has published everything again, because the informer waits
// for a consistency point.
//
// The file can be incomplete in two cases: if the program starts while the forwarder publishes
// everything again after a loss, or after a loss if KUBERELAY_RESOLVED_INTERVAL is 0. In both cases, the
// file at first has only the objects that the forwarder has published so far.
//
//	NATS_URL=nats://localhost:4222 NATS_TOKEN_FILE=~/.local/share/kuberelay/nats/token \
//	  RESOURCE=deployments.v1.apps TABLE=deployments.txt go run ./examples/replica
//
// The built-in server requires NATS_TOKEN_FILE. It writes its token to nats/token in
// KUBERELAY_DATA_DIR, and the path above is the default. Another server may need no token.
//
// With KAFKA_BROKERS=localhost:9092, the program reads Kafka. STREAM, TOPIC and CLUSTER are optional.
// If the bus has several clusters, CLUSTER is required.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/replica"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

// open connects to the bus. It doesn't wait until the bus is reachable.
func open(ctx context.Context) (*replica.Bus, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if brokers := os.Getenv("KAFKA_BROKERS"); brokers != "" {
		return replica.Kafka(replica.KafkaOptions{Brokers: strings.Split(brokers, ","), Topic: os.Getenv("TOPIC"), Logger: log})
	}
	return replica.NATS(ctx, replica.NATSOptions{
		URLs: []string{cmp.Or(os.Getenv("NATS_URL"), "nats://localhost:4222")}, TokenFile: os.Getenv("NATS_TOKEN_FILE"),
		Stream: os.Getenv("STREAM"), Logger: log,
	})
}

func run(ctx context.Context) error {
	gvr, _ := schema.ParseResourceArg(cmp.Or(os.Getenv("RESOURCE"), "deployments.v1.apps"))
	if gvr == nil {
		return fmt.Errorf("RESOURCE=%q: use resource.version.group, such as deployments.v1.apps, or pods.v1. for the core group", os.Getenv("RESOURCE"))
	}
	bus, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = bus.Close() }() // an error is harmless, because nothing is in flight

	objects := bus.ListerWatcher(*gvr, replica.Options{Cluster: os.Getenv("CLUSTER")})
	informer := cache.NewSharedIndexInformer(objects, &unstructured.Unstructured{}, 0, cache.Indexers{})
	changed := make(chan struct{}, 1)
	change := func() {
		select {
		case changed <- struct{}{}:
		default: // a change is already pending
		}
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { change() },
		UpdateFunc: func(any, any) { change() },
		DeleteFunc: func(any) { change() },
	})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)

	// After this wait, the store has the current state. If there are no objects, the informer calls
	// no handler, so the first write doesn't depend on one.
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil
	}
	change()
	for {
		select {
		case <-changed:
			if err := write(cmp.Or(os.Getenv("TABLE"), "table.txt"), informer.GetStore().List()); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// write replaces the file with a line for each object: namespace, name, UID, and version.
func write(file string, objects []any) error {
	var lines []string
	for _, o := range objects {
		u := o.(*unstructured.Unstructured)
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\n", cmp.Or(u.GetNamespace(), "-"), u.GetName(), u.GetUID(), u.GetResourceVersion()))
	}
	slices.Sort(lines)
	if err := os.WriteFile(file+".new", []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
