package relay

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/projection"
	"github.com/kuberelay/kuberelay/internal/status"
)

// Shape returns a function that tells which objects of a resource c publishes, and which of their
// fields. It is for callers that do not publish. The function is nil if every object is published
// in full. An object for which the filter fails is published.
func Shape(c config.Content) (func(event.Resource) event.Shape, error) {
	s, err := newShapes(c, func(event.Resource, error) {})
	if err != nil {
		return nil, err
	}
	return s.shapeFunc(), nil
}

// shapes decides which objects of a resource are published, and which of their fields. The
// zero value publishes everything.
type shapes struct {
	drop, hash, known projection.Projections // known is empty without KUBERELAY_HASH_KNOWN_FIELDS

	fields projection.Projections // all fields of drop, hash and known
	filter *filter.Filter         // nil for none

	failed func(event.Resource, error) // called for each object for which the filter fails
}

func newShapes(c config.Content, failed func(event.Resource, error)) (*shapes, error) {
	s := &shapes{failed: failed}
	var err error
	if s.drop, err = projection.ParseDrop(c.DropFields); err != nil {
		return nil, err
	}
	if s.hash, err = projection.ParseHash(c.HashFields); err != nil {
		return nil, err
	}
	if c.HashKnown {
		s.known = projection.Known()
	}
	s.fields = s.drop.And(s.hash).And(s.known)
	if c.Filter != "" {
		if s.filter, err = filter.Compile(c.Filter); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// shapeFunc returns s.of, or nil if every object is published in full.
func (s *shapes) shapeFunc() func(event.Resource) event.Shape {
	if s.filter == nil && s.fields.None() {
		return nil
	}
	return s.of
}

// warn logs the fields of the watched resources that are known to hold secrets but are published
// unchanged.
func (s *shapes) warn(watched []event.Resource, log *slog.Logger) {
	if entries := s.readable(watched); len(entries) > 0 {
		log.Warn("fields that are known to hold secrets are published", "fields", entries)
	}
}

// neverSelected returns the resources for which the filter can select no object.
func (s *shapes) neverSelected(watched []event.Resource) []string {
	var never []string
	for _, r := range watched {
		if s.filter != nil && s.filter.Never(r) {
			never = append(never, r.GroupResource().String())
		}
	}
	slices.Sort(never)
	return never
}

// hashed returns the entries for the hashed fields of these resources, except the fields of Secrets.
func (s *shapes) hashed(watched []event.Resource) []string {
	return s.hash.And(s.known).Entries(watched)
}

// readable returns the fields of these resources that are known to hold secrets but are published
// unchanged.
func (s *shapes) readable(watched []event.Resource) []string {
	return s.fields.Readable(projection.Known(), watched)
}

// reshape returns a function that converts a state on the bus to the form in which it would be
// published now.
func (s *shapes) reshape(c *event.Converter) func(event.Resource, *event.Object) *event.Object {
	return func(r event.Resource, o *event.Object) *event.Object { return c.Reshape(o, r, s.fields.For(r)) }
}

func (s *shapes) of(r event.Resource) event.Shape {
	shape := s.fields.For(r)
	switch {
	case s.filter == nil:
		return shape
	case s.filter.Never(r):
		return event.Shape{None: true}
	}
	if selects := s.filter.For(r); selects != nil {
		shape.Select = func(object map[string]any) (bool, error) {
			selected, err := selects(object)
			if err != nil {
				s.failed(r, err)
			}
			return selected, err
		}
	}
	return shape
}

// filterErrors counts the states of objects for which the filter fails, and logs and keeps the first
// error of each resource.
type filterErrors struct {
	log   *slog.Logger
	total *prometheus.CounterVec
	first sync.Map // of resources, each a status.Error
}

func newFilterErrors(log *slog.Logger, r prometheus.Registerer) *filterErrors {
	return &filterErrors{log: log, total: filter.NewErrorsTotal(r)}
}

func (f *filterErrors) add(of event.Resource, err error) {
	gr := of.GroupResource().String()
	f.total.WithLabelValues(gr).Inc()
	if _, again := f.first.Load(gr); again {
		return
	}
	if _, again := f.first.LoadOrStore(gr, status.Error{Message: err.Error(), Since: time.Now().UTC()}); !again {
		f.log.Warn("KUBERELAY_FILTER failed for an object, publishing the object; logged once per resource", "resource", gr, "err", err)
	}
}

// of returns the first error of a resource, or nil if it has none.
func (f *filterErrors) of(resource string) *status.Error {
	first, ok := f.first.Load(resource)
	if !ok {
		return nil
	}
	e := first.(status.Error)
	return &e
}
