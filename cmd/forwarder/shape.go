package main

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/projection"
)

// shapes says what is sent of the objects of each resource. The zero value is all of all.
type shapes struct {
	drop   projection.Projections
	filter *filter.Filter // nil for none

	failed func(event.Resource, error) // told of an object for which the filter fails
}

func newShapes(c config.Content, failed func(event.Resource, error)) (*shapes, error) {
	s := &shapes{failed: failed}
	var err error
	if s.drop, err = projection.Parse(c.DropFields); err != nil {
		return nil, err
	}
	if c.Filter != "" {
		if s.filter, err = filter.Compile(c.Filter); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// function gives nil where everything is sent, of all objects.
func (s *shapes) function(c config.Content) func(event.Resource) event.Shape {
	if c.Filter == "" && len(c.DropFields) == 0 {
		return nil
	}
	return s.of
}

// warn tells what of the configuration has no effect, or leaves out everything, of the
// resources that are watched: a plural may have been taken for a Kind.
func (s *shapes) warn(watched []event.Resource, log *slog.Logger) {
	if entries := s.drop.Unmatched(watched); len(entries) > 0 {
		log.Warn("some of KUBERELAY_DROP_FIELDS are of no resource that is watched at present; they wait", "entries", entries)
	}
	var never []string
	for _, r := range watched {
		if s.filter != nil && s.filter.Never(r) {
			never = append(never, r.GroupResource().String())
		}
	}
	if len(never) > 0 {
		slices.Sort(never)
		log.Warn("KUBERELAY_FILTER selects no object of some resources that are watched, whatever it is", "resources", never)
	}
}

func (s *shapes) of(r event.Resource) event.Shape {
	shape := event.Shape{Project: s.drop.For(r)}
	switch {
	case s.filter == nil:
		return shape
	case s.filter.Never(r):
		return event.Shape{None: true}
	}
	if selects := s.filter.For(r); selects != nil {
		shape.Select = func(object map[string]any) bool {
			selected, err := selects(object)
			if err != nil {
				s.failed(r, err)
			}
			return selected
		}
	}
	return shape
}

// filterErrors counts the objects for which the filter fails, which are sent then.
func filterErrors(log *slog.Logger, r prometheus.Registerer) func(event.Resource, error) {
	errors := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kuberelay_filter_errors_total",
		Help: "States of objects for which KUBERELAY_FILTER fails, by resource. They are sent.",
	}, []string{"resource"})
	r.MustRegister(errors)
	var said sync.Map // resources
	return func(of event.Resource, err error) {
		gr := of.GroupResource().String()
		errors.WithLabelValues(gr).Inc()
		if _, again := said.LoadOrStore(gr, true); !again {
			log.Warn("KUBERELAY_FILTER fails for an object, which is sent; this is said once for each resource", "resource", gr, "err", err)
		}
	}
}

// noteNoFilterErrors is for whom only compares.
func noteNoFilterErrors(event.Resource, error) {}
