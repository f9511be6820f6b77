package event

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/cespare/xxhash/v2"

	"github.com/kuberelay/kuberelay/internal/redaction"
)

// Digest identifies the content of an object as it is published. The zero value means no digest.
//
// A projected digest identifies the meaning of the content. An object has a projected digest if its
// [Shape] can drop fields (see [Digest.Projected]). Two objects have the same projected digest if
// their published content is equal, except for resourceVersion and generation, which also change
// when a dropped field changes. A projected digest is the first half of the SHA-256 of that content
// as JSON, with sorted keys and without spaces.
//
// A text digest identifies the text of an object whose [Shape] drops no fields. It is the xxHash64
// of the published JSON, which keeps the API server's text unless a value is hashed. Computing it
// takes a microsecond for 8 KB. Two texts with different digests can have the same meaning. A text
// digest is not collision resistant: someone can construct two objects with the same digest.
//
// Without a redaction key, the hashes that replace secret values change with each start. The digest
// of an object with such hashes is then a text digest that ignores the digits of the hashes.
type Digest [16]byte

// textSize is the number of bytes that a text digest uses.
const textSize = 8

// None reports whether d is the zero value, which means no digest.
func (d Digest) None() bool { return d == Digest{} }

// Projected reports whether d is a projected digest.
func (d Digest) Projected() bool {
	return [len(d) - textSize]byte(d[textSize:]) != [len(d) - textSize]byte{}
}

// String returns the digest in hex, with 16 digits, or 32 if it is projected. It returns "" if d is
// the zero value.
func (d Digest) String() string {
	switch {
	case d.None():
		return ""
	case d.Projected():
		return hex.EncodeToString(d[:])
	}
	return hex.EncodeToString(d[:textSize])
}

// MarshalText returns the form of String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Digest) UnmarshalText(text []byte) (err error) {
	*d, err = parseDigest(string(text))
	return err
}

// parseDigest is the inverse of String.
func parseDigest(s string) (Digest, error) {
	var d Digest
	if s == "" {
		return d, nil
	}
	if n := len(s); n != 2*len(d) && n != 2*textSize {
		return d, fmt.Errorf("digest %q does not have %d or %d hex digits", s, 2*textSize, 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("digest %q does not have %d or %d hex digits", s, 2*textSize, 2*len(d))
	}
	return d, nil
}

// textDigest returns the text digest of a published text.
func textDigest(text []byte) (d Digest) {
	binary.BigEndian.PutUint64(d[:], max(1, xxhash.Sum64(text)))
	return d
}

// DigestOf returns the projected digest of an object whose body is b after projection.
func DigestOf(b Body) (Digest, error) {
	text, err := b.JSON()
	if err != nil {
		return Digest{}, err
	}
	content, err := tree(text)
	if err != nil {
		return Digest{}, err
	}
	return digestOf(content)
}

// digestOf returns the digest of a decoded object, which it does not change.
func digestOf(content map[string]any) (Digest, error) {
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		delete(metadata, "generation")
		content = maps.Clone(content)
		content["metadata"] = metadata
	}
	text, err := encode(content)
	if err != nil {
		return Digest{}, err
	}
	sum := sha256.Sum256(text)
	return Digest(sum[:len(Digest{})]), nil
}

// Shape says which objects of a resource are published, and which of their fields. The zero value
// publishes everything and decodes only Secrets. The functions receive each object as maps, slices,
// strings, [json.Number], bool and nil. In a Secret, the values of data and stringData are hashes
// already; labels and annotations are not.
type Shape struct {
	// None means that no object is published. Objects are then not decoded.
	None bool

	// Select reports whether to publish an object. If it is nil, all objects are published. Select
	// must not modify the object. If it returns true and an error, the object is published.
	Select func(object map[string]any) (bool, error)

	// Project removes the fields that are not published, and replaces the values to hide with
	// hashes. hash returns the hash of a value at a path from the root. dropped reports whether
	// Project removed a field. If Project is nil, all fields are published. Project keeps the
	// identity: apiVersion, kind, and name, namespace, uid and resourceVersion in metadata.
	Project func(object map[string]any, hash Hash) (dropped bool)

	// Mentions reports whether Project may change an object with this text. If it returns false,
	// the object isn't decoded for Project alone. If Mentions is nil, Project may change any
	// object.
	Mentions func(text []byte) bool

	// Drops means that Project may remove fields. A change that affects only the removed fields is
	// not published.
	Drops bool
}

// Hash is a function that returns the hash of a value. The path consists of member names and list
// positions.
type Hash func(path []string, value any) any

// decodes reports whether an object must be decoded.
func (s Shape) decodes(text []byte) bool {
	return s.Select != nil || s.Drops || s.Project != nil && (s.Mentions == nil || s.Mentions(text))
}

// published is the content of an object after redaction and projection.
type published struct {
	selected bool
	changed  bool // the text differs from that of the object
	text     []byte
	digest   Digest
}

// shape redacts, selects and projects an object with the given text. If fromBus is set, the text is
// a state that was read from the bus. Such a state is always selected, and keeps its hashes.
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

// Reshape converts a state that was read from the bus to the form in which it would be published
// now. The state may come from an earlier configuration, with fields that are now dropped or
// hashed. If its text cannot be decoded, the result has no Body.
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
