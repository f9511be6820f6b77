// Package shape decides which objects of a resource are published, and which of their fields: it
// connects KUBERELAY_FILTER, KUBERELAY_DROP_FIELDS, KUBERELAY_HASH_FIELDS, and
// KUBERELAY_HASH_KNOWN_FIELDS. Commands that compare objects with the bus use the same shapes as
// the forwarder that publishes them.
//
// The package does not decide which resources and namespaces are watched. Package discovery does.
package shape

import (
	"log/slog"
	"slices"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/projection"
)

// Shapes defines the shape of the objects of each resource. The zero value publishes every object
// in full.
type Shapes struct {
	drop, hash, known projection.Projections // known is empty without KUBERELAY_HASH_KNOWN_FIELDS

	fields projection.Projections // all fields of drop, hash, and known
	filter *filter.Filter         // nil for none

	failed func(event.Resource, error) // called for each object for which the filter fails; nil for none
}

// New returns the shapes of the settings. failed, if not nil, is called for each object for which
// the filter fails. Such an object is published.
func New(c config.Content, failed func(event.Resource, error)) (*Shapes, error) {
	s := &Shapes{failed: failed}
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

// Func returns a function that returns the shape of the objects of a resource. It returns nil if
// every object is published in full.
func (s *Shapes) Func() func(event.Resource) decode.Shape {
	if s.filter == nil && s.fields.None() {
		return nil
	}
	return s.of
}

// Warn logs the fields of the watched resources that are known to hold secrets but are published
// unchanged.
func (s *Shapes) Warn(watched []event.Resource, log *slog.Logger) {
	if entries := s.Readable(watched); len(entries) > 0 {
		log.Warn("fields that are known to hold secrets are published", "fields", entries)
	}
}

// HasFilter reports whether a filter selects the objects.
func (s *Shapes) HasFilter() bool { return s.filter != nil }

// Unmatched returns the settings that match nothing in these resources: the entries of
// KUBERELAY_DROP_FIELDS and KUBERELAY_HASH_FIELDS that apply to none of the resources, and the
// resources whose objects the filter can never select.
func (s *Shapes) Unmatched(watched []event.Resource) (drop, hash, filtered []string) {
	for _, r := range watched {
		if s.filter != nil && s.filter.Never(r) {
			filtered = append(filtered, r.GroupResource().String())
		}
	}
	slices.Sort(filtered)
	return s.drop.Unmatched(watched), s.hash.Unmatched(watched), filtered
}

// Hashed returns the entries for the hashed fields of these resources, except the fields of Secrets.
func (s *Shapes) Hashed(watched []event.Resource) []string {
	return s.hash.And(s.known).Entries(watched)
}

// Readable returns the fields of these resources that are known to hold secrets but are published
// unchanged.
func (s *Shapes) Readable(watched []event.Resource) []string {
	return s.fields.Readable(projection.Known(), watched)
}

// Reshape returns a function that converts a state on the bus to the form in which it would be
// published now.
func (s *Shapes) Reshape(c *decode.Converter) func(event.Resource, *event.Object) *event.Object {
	return func(r event.Resource, o *event.Object) *event.Object { return c.Reshape(o, r, s.fields.For(r)) }
}

func (s *Shapes) of(r event.Resource) decode.Shape {
	shape := s.fields.For(r)
	switch {
	case s.filter == nil:
		return shape
	case s.filter.Never(r):
		return decode.Shape{None: true}
	}
	if selects := s.filter.For(r); selects != nil {
		shape.Select = func(object map[string]any) (bool, error) {
			selected, err := selects(object)
			if err != nil && s.failed != nil {
				s.failed(r, err)
			}
			return selected, err
		}
	}
	return shape
}

// Converted returns an object of the API server as a forwarder with these settings publishes it.
// failed is the error of KUBERELAY_FILTER for this object. An object with such an error is published.
func Converted(c config.Config, redactionKey []byte, r event.Resource, text []byte) (o *event.Object, failed, err error) {
	s, err := New(c.Content, func(_ event.Resource, err error) { failed = err })
	if err != nil {
		return nil, nil, err
	}
	o, err = decode.NewConverter(redactionKey, c.Event.ClusterName).Decoder(r, event.NewPacker(), nil, s.of(r)).Decode(text)
	return o, failed, err
}
