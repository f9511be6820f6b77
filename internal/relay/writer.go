package relay

import (
	"context"
	"errors"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// OpenWriter connects to the bus as the writer of the cluster name in the settings, whichever cluster owns
// it, and waits until the bus is ready. On Kafka it takes over the topics: the brokers refuse the writer
// before it. Call close in the end. An error is a [ConfigError] if a retry cannot succeed.
func OpenWriter(ctx context.Context, c Config) (_ publish.Bus, closeBus func() error, err error) {
	if len(c.Settings.NATS.URLs) == 0 && c.Settings.Event.Sink == config.SinkNATS {
		return nil, nil, &ConfigError{errBuiltIn}
	}
	b, err := openBus(ctx, c, &claim{name: c.Settings.Event.ClusterName, log: c.Logger}, nil, c.Registerer, func(func() error) {})
	if err != nil {
		return nil, nil, err
	}
	return b.claims, b.Close, nil
}

var errBuiltIn = errors.New("KUBERELAY_NATS_URL is not set, and only its own forwarder can write to a built-in server")
