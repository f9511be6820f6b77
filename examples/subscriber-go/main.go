// Subscriber-go reads the bus of Kuberelay with a plain NATS client. It prints a line for the current
// state of every object, and then a line for each change as it happens.
//
//	NATS_URL=nats://localhost:4222 go run ./examples/subscriber-go
//
// The default of NATS_URL is nats://localhost:4222, the address of the built-in server. If the server
// requires a token, set NATS_TOKEN. The built-in server writes its token to a file. If KUBERELAY_DATA_DIR
// and XDG_DATA_HOME are not set, the path of the file is:
//
//	NATS_TOKEN=$(cat ~/.local/share/kuberelay/nats/token) go run ./examples/subscriber-go
//
// The sidecar example needs no token.
//
// SUBJECTS is a subject that selects events, such as kuberelay.*.apps.deployments.>. Such a selection
// leaves out the claims of clusters, which tell the subscriber about a new stream. The subjects of claims
// match kuberelay.*._control.>.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	asked := ctx.Err() != nil // a signal requested the stop
	cancel()
	if err != nil && !asked {
		fmt.Fprintln(os.Stderr, "subscriber-go:", err)
		os.Exit(1)
	}
}

// object is the part of the data that this subscriber prints. To get the whole object, unmarshal the data
// into the type of your resource, such as corev1.Pod.
type object struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

func run(ctx context.Context) error {
	url := cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL)
	if strings.Contains(url, "@") { // error messages can show the URL
		return errors.New("NATS_URL has credentials: set NATS_TOKEN instead")
	}
	conn, err := nats.Connect(url, nats.Token(os.Getenv("NATS_TOKEN")), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	// An ordered consumer keeps its position even if the connection is lost. "Last per subject"
	// starts with the last event of each object, which has its current state.
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
	streams := map[string]string{}
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if m.Headers().Get("ce-type") == "io.kuberelay.cluster.claimed" {
			err = notice(streams, m)
		} else {
			err = handle(m)
		}
		if err != nil {
			return err
		}
	}
}

// notice prints a line if the stream was recreated, for example because the server lost its files. The
// claim of a cluster names the stream. The forwarder publishes all existing objects again, but no
// deletes for the objects that were deleted in the meantime.
func notice(streams map[string]string, m jetstream.Msg) error {
	var claim struct {
		Stream string `json:"stream"`
	}
	if err := json.Unmarshal(m.Data(), &claim); err != nil {
		return fmt.Errorf("event %s: %w", m.Headers().Get("ce-id"), err)
	}
	source := m.Headers().Get("ce-source")
	if before, ok := streams[source]; ok && before != claim.Stream {
		fmt.Println("stream recreated", source, claim.Stream)
	}
	streams[source] = claim.Stream
	return nil
}

// handle prints an event. The events of each object arrive in order, and the last one has its current
// state. An event that arrives again after a restart has no new information.
func handle(m jetstream.Msg) error {
	kind, ofObject := strings.CutPrefix(m.Headers().Get("ce-type"), "io.kuberelay.object.")
	if !ofObject {
		return nil // a marker, such as the end of a first snapshot
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
