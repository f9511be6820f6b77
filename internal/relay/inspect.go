package relay

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// InspectNATS looks at the server and the stream of a Relay with these settings, and writes nothing.
// Without KUBERELAY_NATS_URL this is the built-in server of a Relay on this machine, as its
// subscribers see it.
func InspectNATS(ctx context.Context, cfg config.Config) (nats.Inspection, error) {
	o := natsOptions(cfg)
	connection := o.Connection()
	if len(cfg.NATS.URLs) == 0 {
		var err error
		if connection, err = NATSReaderOptions(cfg); err != nil {
			return nats.Inspection{}, err
		}
	}
	return nats.Inspect(ctx, connection, o)
}

// InspectKafka looks at the topics of a Relay with these settings that watches these resources, and
// writes nothing.
func InspectKafka(ctx context.Context, cfg config.Config, resources []schema.GroupResource) (kafka.Inspection, error) {
	o, err := kafkaOptions(cfg)
	if err != nil {
		return kafka.Inspection{}, err
	}
	o.Cluster = cfg.Event.ClusterName
	return kafka.Inspect(ctx, o, resources)
}

// LastClaim reads the claim of the cluster name in these settings, the zero value for none.
func LastClaim(ctx context.Context, cfg config.Config) (event.Claim, error) {
	if cfg.Event.Sink == config.SinkKafka {
		i, err := InspectKafka(ctx, cfg, nil)
		return i.Claim, cmp.Or(err, i.ClaimErr)
	}
	i, err := InspectNATS(ctx, cfg)
	return i.Claim, cmp.Or(err, i.ClaimErr)
}
