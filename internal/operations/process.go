package operations

import (
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Register registers kuberelay_build_info, which has the version and the commit of the forwarder.
// It also registers the metrics of the Go runtime, of the process, and of its requests to API
// servers. Call it before you create the first client: client-go discards earlier counts and does
// not expect its hook to change.
func Register(r prometheus.Registerer, version, commit string) {
	register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kuberelay_build_info",
		Help: "Always 1. The labels have the version and commit of the forwarder, and its Go version. Join it to other metrics to compare releases.",
	}, []string{"version", "commit", "goversion"})).WithLabelValues(version, commit, runtime.Version()).Set(1)
	register(r, collectors.NewGoCollector())
	register(r, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registerRESTClients(r)
}

// register registers c with r and returns c. If r is nil, it only returns c. If r already has a
// collector with the same names, register returns that collector. It panics if that collector has
// another type, which is a programming error.
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
