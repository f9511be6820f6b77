package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsBus is the NATS server that the forwarder brings.
type natsBus struct{ address string }

func (b *natsBus) start(context.Context, *stage) error {
	addresses, err := freeAddresses(1)
	if err == nil {
		b.address = addresses[0]
	}
	return err
}

func (b *natsBus) stop() error { return nil }

func (b *natsBus) url() string { return "nats://" + b.address }

func (b *natsBus) settings() []string { return []string{"KUBERELAY_NATS_LISTEN=" + b.address} }

func (b *natsBus) reading() []string { return []string{"KUBERELAY_NATS_URL=" + b.url()} }

func (b *natsBus) words() words {
	return words{server: ", which brings its own NATS server", killed: ", and its NATS server with it", subject: "subject"}
}

func (b *natsBus) byHand(bin string) string {
	return fmt.Sprintf(`  # the state of every object, and then what changes; or the whole events; or what each update changes; or with the NATS CLI
  export KUBERELAY_NATS_URL=%[1]s
  %[2]s tail --last
  %[2]s tail --from-start --resource=pods --output=json
  %[2]s tail --diff --resource=deployments
  nats --server=%[1]s subscribe 'kuberelay.>'`, b.url(), bin)
}

const (
	stream = "KUBERELAY"
	// heartbeat is after what time of silence, about, the subscriber finds out that
	// the server has forgotten it, as one that was killed does.
	heartbeat = time.Second
)

func (b *natsBus) subscribe(ctx context.Context, take func(event, error)) (closer func(), err error) {
	conn, err := nats.Connect(b.url(), nats.Name("demo"), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	consuming, err := consume(ctx, conn, take)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return func() { consuming.Stop(); conn.Close() }, nil
}

func consume(ctx context.Context, conn *nats.Conn, take func(event, error)) (jetstream.ConsumeContext, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	// An ordered consumer needs no acknowledgements and goes on where it was after
	// any interruption.
	anyError := func(error) bool { return true } // there may be no server yet, or no stream
	consumer, err := retry(ctx, anyError, func() (jetstream.Consumer, error) {
		return js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	})
	if err != nil {
		return nil, err
	}
	each := func(msg jetstream.Msg) {
		take(readEvent(msg.Subject(), msg.Data(), func(attribute string) (string, error) {
			return url.PathUnescape(msg.Headers().Get("ce-" + attribute))
		}))
	}
	return consumer.Consume(each, jetstream.PullHeartbeat(heartbeat), jetstream.PullExpiry(5*heartbeat))
}
