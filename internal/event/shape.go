package event

import "github.com/kuberelay/kuberelay/internal/redaction"

// Shape selects what is published of the objects of one resource. The zero value publishes
// everything without decoding an object. Otherwise the functions receive each object as
// maps, slices, strings, [json.Number], bool and nil. In a Secret, the values of data and
// stringData are hashes already; labels and annotations are not.
type Shape struct {
	// None: no object is published. Objects are not decoded.
	None bool

	// Select reports whether to publish an object; nil publishes all. It does not change
	// the object.
	Select func(object map[string]any) bool

	// Project removes the fields that are not published, and replaces fields by hashes; nil
	// publishes all fields. Hash returns the hash of a value at a path from the root.
	// Project keeps the identity: apiVersion, kind, and name, namespace, uid and
	// resourceVersion in metadata.
	Project func(object map[string]any, hash Hash) (dropped bool)

	// Mentions reports whether Project may change an object with this text; nil if it may
	// change any. Other objects are not decoded for it.
	Mentions func(text []byte) bool

	// Drops reports whether Project may remove fields. A change of these alone is not
	// published.
	Drops bool
}

// Hash returns the hash of a value. The path has names and list positions.
type Hash func(path []string, value any) any

// decodes reports whether an object must be decoded.
func (s Shape) decodes(text []byte) bool {
	return s.Select != nil || s.Drops || s.Project != nil && (s.Mentions == nil || s.Mentions(text))
}

// published is the content of an object after redaction and projection.
type published struct {
	selected bool
	changed  bool // the text is not that of the object
	text     []byte
	digest   Digest
}

// shape redacts, selects and projects an object, given its text. A state that was read from
// the bus is always selected, and the hashes in it stay.
func (c *Converter) shape(o *Object, r Resource, s Shape, text []byte, fromBus bool) (published, error) {
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
	if s.Select != nil && !fromBus && !s.Select(content) {
		p.selected = false
		return p, nil
	}
	dropped := s.Project != nil && s.Project(content, redactor.Field)
	if secret {
		redactor.SecretMetadata(content)
	}
	p.changed = dropped || redactor.Hashed() || !fromBus && (secret || s.Drops)
	if p.changed {
		if p.text, err = encode(content); err != nil {
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

// Reshape returns a state that was read from the bus as it would be published now. The bus
// can have it from an earlier configuration, with fields that are dropped or hashed today.
// If its text cannot be decoded, the result has no Body.
func (c *Converter) Reshape(o *Object, r Resource, s Shape) *Object {
	reshaped := *o
	text, err := o.Body.JSON()
	if err == nil {
		var p published
		if p, err = c.shape(o, r, s, text, true); err == nil && p.changed {
			reshaped.Body, reshaped.Digest = JSON(p.text), p.digest
		}
	}
	if err != nil {
		reshaped.Body, reshaped.Digest = Body{}, Digest{}
	}
	reshaped.Shaped = true
	return &reshaped
}
