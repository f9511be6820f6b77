package decode

import (
	"strings"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/redaction"
)

// Converter holds the state that the [Decoder]s of a process share. It is safe for concurrent use.
type Converter struct {
	key   *redaction.Key
	names sync.Map // interned strings, for the few values that every object repeats
}

// NewConverter returns a Converter that hashes values in the named cluster's objects with the given
// key. See [redaction.NewKey].
func NewConverter(redactionKey []byte, cluster string) *Converter {
	return &Converter{key: redaction.NewKey(redactionKey, cluster)}
}

// intern returns the same string for all equal strings. Use it for names of types, of which a
// cluster has hundreds.
func (c *Converter) intern(s string) string {
	if known, ok := c.names.Load(s); ok {
		return known.(string)
	}
	s = strings.Clone(s)
	known, _ := c.names.LoadOrStore(s, s)
	return known.(string)
}

// published is the content of an object after redaction and projection.
type published struct {
	selected bool
	changed  bool // the text differs from that of the object
	text     []byte
	digest   event.Digest
}

// shape redacts, selects, and projects an object with the given text. If fromBus is set, the text
// is a state that was read from the bus. Such a state is always selected, and keeps its hashes.
func (c *Converter) shape(o *event.Object, r event.Resource, s Shape, text []byte, fromBus bool) (published, error) {
	p := published{selected: true, text: text}
	content, err := tree(text)
	if err != nil {
		return p, err
	}
	redactor := redaction.Redactor{
		Key: c.key, Again: fromBus,
		Of: redaction.Object{Group: r.Group, Resource: r.Resource, Namespace: o.Namespace, Name: o.Name},
	}
	secret := redactor.Of.IsSecret()
	if secret {
		redactor.SecretData(content)
	}
	if s.Select != nil && !fromBus {
		selected, err := s.Select(content)
		if o.FilterFailed = err != nil; !selected {
			p.selected = false
			return p, nil
		}
	}
	dropped := s.Project != nil && s.Project(content, redactor.Field)
	if secret {
		redactor.SecretMetadata(content)
	}
	p.changed = dropped || redactor.Hashed() || !fromBus && (secret || s.Drops)
	if p.changed {
		if p.text, err = event.EncodeJSON(content); err != nil {
			return p, errNotJSON
		}
	}
	switch {
	case redactor.Hashed() && c.key.Random():
		p.digest = textDigest(redaction.Masked(p.text))
	case s.Drops:
		if p.digest, err = digestOf(content); err != nil {
			return p, errNotJSON
		}
	default:
		p.digest = textDigest(p.text)
	}
	return p, nil
}

// Reshape converts a state read from the bus into the form in which it would be published now. The
// state might come from an earlier configuration, with fields that are now dropped or hashed. If its
// text cannot be decoded, the result has no Body.
func (c *Converter) Reshape(o *event.Object, r event.Resource, s Shape) *event.Object {
	reshaped := *o
	text, err := o.Body.JSON()
	if err == nil {
		var p published
		if p, err = c.shape(o, r, s, text, true); err == nil && p.changed {
			reshaped.Body, reshaped.Digest = event.JSON(p.text), p.digest
		}
	}
	if err != nil {
		reshaped.Body, reshaped.Digest = event.Body{}, event.Digest{}
	}
	reshaped.Shaped = true
	return &reshaped
}
