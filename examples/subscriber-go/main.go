// Subscriber-go reads Kuberelay's bus with nothing but a NATS client: first the present
// state of every object, and then each change as it happens. It prints a line for each.
//
//	NATS_URL=nats://localhost:4222 go run ./examples/subscriber-go
//
// NATS_URL is nats://localhost:4222 if it is not set, which is where the built-in
// server of a sidecar is. SUBJECTS may say which events, such as
// kuberelay.*.apps.deployments.>.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	asked := ctx.Err() != nil // to end
	cancel()
	if err != nil && !asked {
		fmt.Fprintln(os.Stderr, "subscriber-go:", err)
		os.Exit(1)
	}
}

// object is what the data of every event has; unmarshal it into corev1.Pod, or
// whatever it is, for all of it.
type object struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

func run(ctx context.Context) error {
	conn, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	// An ordered consumer keeps its place by itself, also when the connection is lost.
	// «Last per subject» begins with the last event of each object: its present state.
	consumer, err := js.OrderedConsumer(ctx, cmp.Or(os.Getenv("STREAM"), "KUBERELAY"), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{cmp.Or(os.Getenv("SUBJECTS"), "kuberelay.>")},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if err := handle(m); err != nil {
			return err
		}
	}
}

// handle prints an event. Each object's come in order; of what they say only the last
// counts, and one that comes again, after a restart, says nothing new.
func handle(m jetstream.Msg) error {
	kind, ofObject := strings.CutPrefix(m.Headers().Get("ce-type"), "io.kuberelay.object.")
	if !ofObject {
		return nil // a marker, such as that a first snapshot is complete
	}
	if kind == "deleted" || kind == "deselected" {
		fmt.Println(kind, m.Headers().Get("ce-subject"))
		return nil
	}
	var o object
	if err := json.Unmarshal(m.Data(), &o); err != nil {
		return fmt.Errorf("event %s: %w", m.Headers().Get("ce-id"), err)
	}
	fmt.Println(kind, m.Headers().Get("ce-subject"), m.Headers().Get("ce-resourceversion"), o.Metadata.Labels)
	return nil
}
