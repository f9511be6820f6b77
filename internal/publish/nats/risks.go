package nats

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// Risks returns the settings of a stream that allow the loss of acknowledged messages. It omits
// settings that a forwarder rejects. It cannot check sync_interval, because only the system account
// of a server can read it.
//
// clustered reports whether the server of the stream is part of a cluster. builtIn reports whether
// the server is the forwarder's built-in server, which syncs at intervals.
func Risks(is jetstream.StreamConfig, clustered, builtIn bool) []publish.Risk {
	r := publish.Risk{Setting: fmt.Sprintf("num_replicas=%d", is.Replicas), Of: []string{is.Name}}
	switch {
	case is.Replicas > 1:
		return nil
	case clustered:
		r.Loses = "if the server crashes or loses its disk, acknowledged events are lost, because no other server has a copy"
		r.Fix = "run: nats stream edit " + is.Name + " --replicas=3; then set KUBERELAY_NATS_REPLICAS=3"
	case builtIn:
		r.Single, r.Loses = true, "the built-in server syncs to disk every 2 minutes, so a power failure loses the events that were acknowledged since the last sync"
		r.Fix = "if that matters, set KUBERELAY_NATS_URL to a cluster of three NATS servers, and KUBERELAY_NATS_REPLICAS=3"
	default:
		r.Single, r.Loses = true, "one server without a cluster; unless its sync_interval is always, a power failure loses the events that were acknowledged since the last sync"
		r.Fix = "if that matters, set sync_interval to always on the NATS server, or use a cluster of three and KUBERELAY_NATS_REPLICAS=3"
	}
	return []publish.Risk{r}
}

// Clustered reports whether the server of a stream is part of a cluster.
func Clustered(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Name != ""
}

// Risks implements [publish.Bus].
func (b *Bus) Risks() []publish.Risk {
	if all := b.risks.Load(); all != nil {
		return *all
	}
	return nil
}

func (b *Bus) noteRisks(info *jetstream.StreamInfo) {
	all := Risks(info.Config, Clustered(info), b.opts.InProcess != nil)
	b.risks.Store(&all)
}
