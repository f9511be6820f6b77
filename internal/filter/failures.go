package filter

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Failures counts the states of objects for which a filter fails, and logs and keeps the first
// error of each resource.
type Failures struct {
	log   *slog.Logger
	total *prometheus.CounterVec
	first sync.Map // the first failure of each resource
}

// NewFailures returns Failures that log to log. It registers the counter with r, unless r is nil.
func NewFailures(log *slog.Logger, r prometheus.Registerer) *Failures {
	return &Failures{log: log, total: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "kuberelay_filter_errors_total",
		Help: "Object states for which KUBERELAY_FILTER failed, by resource. They are published anyway. If it grows, correct the expression. The log names the part that fails.",
	}, []string{"resource"})}
}

// Add counts a failure of the filter for an object of a resource.
func (f *Failures) Add(of event.Resource, err error) {
	gr := of.GroupResource().String()
	f.total.WithLabelValues(gr).Inc()
	if _, again := f.first.Load(gr); again {
		return
	}
	if _, again := f.first.LoadOrStore(gr, failure{time.Now(), err}); !again {
		f.log.Warn("KUBERELAY_FILTER failed for an object, so the object is published; logged once per resource", "resource", gr, "err", err)
	}
}

// First returns the first error of a resource and its time, or nil if it has none.
func (f *Failures) First(resource string) (since time.Time, err error) {
	first, ok := f.first.Load(resource)
	if !ok {
		return time.Time{}, nil
	}
	is := first.(failure)
	return is.since, is.err
}

type failure struct {
	since time.Time
	err   error
}
