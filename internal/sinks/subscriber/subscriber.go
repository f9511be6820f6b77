// Package subscriber opens the configured bus for a command that reads it as any subscriber does.
//
// [Explain] adds the fix to a bus error, and marks the errors that a retry does not fix. The
// package never writes to the bus, and logs nothing: the command reports to the user.
package subscriber

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/sinks"
	"github.com/kuberelay/kuberelay/internal/tail"
)

// Bus is a bus that a command reads.
type Bus interface {
	tail.Bus
	// Progress returns how far a consumer has read a log.
	Progress(ctx context.Context, consumer string, log publish.Log) (publish.Progress, error)
	Close() error
}

var _, _ Bus = (*natsreader.Bus)(nil), (*reader.Bus)(nil)

// Open opens the bus, and sets the source and the hint of the status. reading, if not nil, counts the
// messages. Open does not wait for an unreachable bus. It returns a [config.Error] if the settings name
// no bus that a subscriber can read.
func Open(ctx context.Context, cfg config.Config, status *tail.Status, reading *longwork.Counter) (Bus, error) {
	bus, err := open(ctx, cfg, status, reading)
	if err != nil {
		return nil, classify(err) // not bus: it would be an interface with a nil pointer, which is not nil
	}
	return bus, nil
}

func open(ctx context.Context, cfg config.Config, status *tail.Status, reading *longwork.Counter) (Bus, error) {
	switch cfg.Event.Sink {
	case config.SinkKafka:
		status.Source = "topic " + cfg.Kafka.Topic
		options := sinks.KafkaReader(cfg)
		options.Reading = reading
		return reader.Open(options)
	case config.SinkNATS:
	default:
		return nil, &config.Error{Err: fmt.Errorf("KUBERELAY_SINK is %s, which this command cannot read: set it to nats or kafka", cfg.Event.Sink)}
	}
	if len(cfg.NATS.URLs) == 0 {
		status.Hint = builtInHint
	}
	status.Source = "stream " + cfg.NATS.Stream
	options, err := sinks.NATSReader(cfg)
	if err != nil {
		return nil, &config.Error{Err: err}
	}
	options.Reading = reading
	return natsreader.Connect(ctx, options)
}

// builtInHint is the hint for an unreachable built-in server of a forwarder on this machine.
const builtInHint = " (is a forwarder running on this machine? To use another server, set KUBERELAY_NATS_URL)"

// Explain adds a fix to the error of a bus that can't be read at all. If a retry does not fix the
// error, Explain returns a [config.Error].
func Explain(cfg config.Config, err error) error {
	onKafka := cfg.Event.Sink == config.SinkKafka
	switch missing := errors.Is(err, publish.ErrMissing); {
	case missing && onKafka:
		err = fmt.Errorf("%w: check KUBERELAY_KAFKA_TOPIC; a forwarder creates the topic when it starts", err)
	case missing:
		err = fmt.Errorf("%w: check KUBERELAY_NATS_STREAM; a forwarder creates the stream when it starts", err)
	case !errors.Is(err, publish.ErrUnreachable):
	case onKafka:
		err = fmt.Errorf("%w: check KUBERELAY_KAFKA_BROKERS, and that a broker is running there", err)
	case len(cfg.NATS.URLs) == 0:
		err = fmt.Errorf("%w%s", err, builtInHint)
	default:
		err = fmt.Errorf("%w: check KUBERELAY_NATS_URL, and that a server is running there", err)
	}
	return classify(err)
}

func classify(err error) error {
	if errors.Is(err, natsreader.ErrMisconfigured) || errors.Is(err, reader.ErrMisconfigured) {
		return &config.Error{Err: err}
	}
	return err
}
