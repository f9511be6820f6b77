package nats

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// newMetrics registers the metrics with r, or nowhere if r is nil.
func newMetrics(r prometheus.Registerer) *publish.Metrics {
	return publish.NewMetrics(r, "nats", stream.ResultFull, stream.ResultDisconnected, stream.ResultNoStream)
}
