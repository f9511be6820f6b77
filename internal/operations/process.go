package operations

import (
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build identifies the build of the forwarder.
type Build struct{ Version, Commit string }

// Register registers the process metrics: kuberelay_build_info, the Go runtime, the
// process, and the requests of its Kubernetes clients. Call it before the first client is
// created: client-go discards earlier counts and does not expect its hook to change.
func Register(r prometheus.Registerer, b Build) {
	register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kuberelay_build_info",
		Help: "1, with the version and commit of the forwarder and its Go version. Join it to other metrics to compare releases.",
	}, []string{"version", "commit", "goversion"})).WithLabelValues(b.Version, b.Commit, runtime.Version()).Set(1)
	register(r, collectors.NewGoCollector())
	register(r, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registerRESTClients(r)
}

// register registers c with r, or nowhere if r is nil. It returns c, or the collector that
// was already registered under the same names. It panics if the registry has another kind
// of collector under that name, which is a programming error.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	err := r.Register(c)
	if err == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	panic(err)
}
