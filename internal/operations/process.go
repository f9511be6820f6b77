package operations

import (
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build says which forwarder this is.
type Build struct{ Version, Commit string }

// Register registers what belongs to the process: kuberelay_build_info, the Go
// runtime, the process, and the requests of its Kubernetes clients. It is called
// before the first client is made: what client-go counted earlier went nowhere, and
// it does not expect its hook to change while it works.
func Register(r prometheus.Registerer, b Build) {
	register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kuberelay_build_info",
		Help: "1, with the version and commit of the forwarder and the Go version it was built with.",
	}, []string{"version", "commit", "goversion"})).WithLabelValues(b.Version, b.Commit, runtime.Version()).Set(1)
	register(r, collectors.NewGoCollector())
	register(r, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registerRESTClients(r)
}

// register registers c with r, or nowhere if r is nil, and gives what is to be used:
// c, or what was registered before it under the same names. It panics where the
// registry has something else of that name, which is a mistake in the program.
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
