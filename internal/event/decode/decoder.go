// Package decode makes an [event.Object] from the JSON of an API server. It drops fields, hashes the
// values of Secrets, and applies the [Shape] of the resource.
//
// The objects from a [Converter] and all errors contain no value of a Secret, and no value that the
// Shape drops or hashes. The hashes are keyed, and change when the value changes. Without a Shape,
// only core Secrets are redacted: a token in a ConfigMap, in an annotation of another type, or in a
// custom resource is published unchanged.
package decode

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
	"github.com/kuberelay/kuberelay/internal/redaction"
)

// Decoder makes an [event.Object] from the JSON of an API server, usually without parsing it into maps. It scans
// the text once for the metadata that the forwarder's decisions need, and cuts out
// metadata.managedFields and the last-applied annotation. It decodes only Secrets, to hash their
// values, and objects that a [Shape] inspects. Only one goroutine can use a Decoder.
type Decoder struct {
	converter  *Converter
	resource   event.Resource
	apiVersion string
	packer     *event.Packer
	keeps      func(namespace string) bool
	shape      Shape

	kindMember, apiVersionMember []byte // added to objects that lack them

	namespace string // namespace of the last object
	ids       []byte // scratch memory, like the next two
	cuts      []cut
	body      []byte
}

// Decoder returns a Decoder for the objects of r. The Decoder compresses bodies with p. It keeps the
// bodies of objects in the namespaces for which keeps returns true, or of all objects if keeps is nil.
// The namespace of a cluster-scoped object is "". Objects that shape does not select have no body.
func (c *Converter) Decoder(r event.Resource, p *event.Packer, keeps func(namespace string) bool, shape Shape) *Decoder {
	return &Decoder{
		converter: c, resource: r, apiVersion: c.intern(r.APIVersion()), packer: p, keeps: keeps, shape: shape,
		kindMember: member("kind", r.Kind), apiVersionMember: member("apiVersion", r.APIVersion()),
	}
}

// fields holds the values that the scan finds in the text. A value is nil if absent.
type fields struct {
	apiVersion, kind, namespace, name, uid, version []byte

	managed []byte // metadata.managedFields
}

// Decode makes an Object from a text.
func (d *Decoder) Decode(text []byte) (*event.Object, error) {
	s := jsonscan.New(text)
	o, err := d.Read(&s)
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Read makes an Object from the next value. If the value has no apiVersion or kind, as is usual for
// list items, the Object takes those of the resource. The caller can modify the text after Read
// returns.
//
// The error wraps [jsonscan.ErrSyntax] if the text is not a JSON object, or if apiVersion, kind,
// metadata, or the name, namespace, uid, or resourceVersion in metadata is duplicated or has the
// wrong type. An object without a name is also an error. An error never contains the content of the
// object.
func (d *Decoder) Read(s *jsonscan.Scanner) (*event.Object, error) {
	var f fields
	hasMetadata := false
	d.cuts = d.cuts[:0]
	s.Object()
	from := s.Position() - 1
	for s.Next() {
		switch string(s.Key()) {
		case "apiVersion":
			f.apiVersion = once(s, f.apiVersion)
		case "kind":
			f.kind = once(s, f.kind)
		case "metadata":
			if hasMetadata {
				s.Fail()
			}
			hasMetadata = true
			d.metadata(s, &f)
		default:
			s.Skip()
		}
	}
	switch {
	case s.Err() != nil:
		return nil, fmt.Errorf("decode an object of %s: %w", d.resource.GroupResource(), s.Err())
	case len(f.name) == 0:
		return nil, fmt.Errorf("decode an object of %s: it has no name", d.resource.GroupResource())
	}
	o := d.object(f)
	if d.shape.None {
		o.Unselected = true
		return o, nil
	}
	if d.keeps != nil && !d.keeps(o.Namespace) {
		return o, nil
	}
	d.join(s, from, f)
	p := published{selected: true, text: d.body}
	isSecret := redaction.Object{Group: d.resource.Group, Resource: d.resource.Resource}.IsSecret()
	if isSecret || d.shape.decodes(d.body) {
		var err error
		if p, err = d.converter.shape(o, d.resource, d.shape, d.body, false); err != nil {
			return nil, fmt.Errorf("decode an object of %s: %w", d.resource.GroupResource(), err)
		}
	} else {
		p.digest = textDigest(p.text)
	}
	if !p.selected {
		o.Unselected = true
		return o, nil
	}
	o.Body, o.Digest, o.Shaped = d.packer.Pack(p.text), p.digest, true
	return o, nil
}

// object makes the Object from the fields. Name, uid, and resourceVersion share one string.
func (d *Decoder) object(f fields) *event.Object {
	o := &event.Object{APIVersion: d.apiVersion, Kind: d.resource.Kind}
	if f.apiVersion != nil && string(f.apiVersion) != o.APIVersion {
		o.APIVersion = d.converter.intern(string(f.apiVersion))
	}
	if f.kind != nil && string(f.kind) != o.Kind {
		o.Kind = d.converter.intern(string(f.kind))
	}
	if string(f.namespace) != d.namespace {
		d.namespace = string(f.namespace)
	}
	o.Namespace = d.namespace
	d.ids = append(append(append(d.ids[:0], f.name...), f.uid...), f.version...)
	all, n, u := string(d.ids), len(f.name), len(f.name)+len(f.uid)
	o.Name, o.UID, o.ResourceVersion = all[:n], types.UID(all[n:u]), all[u:]
	o.Written = newestTime(f.managed)
	return o
}

// join builds the body from the parts of the text to keep, and adds kind and apiVersion if the text
// lacks them. The kind comes first, as in an object that the API server writes outside of a list.
func (d *Decoder) join(s *jsonscan.Scanner, from int, f fields) {
	d.body = append(d.body[:0], '{')
	if f.kind == nil {
		d.body = append(d.body, d.kindMember...)
	}
	if f.apiVersion == nil {
		d.body = append(d.body, d.apiVersionMember...)
	}
	from++
	for _, c := range d.cuts {
		d.body = append(d.body, s.Between(from, c.from)...)
		from = c.to
	}
	d.body = append(d.body, s.Between(from, s.Position())...)
}

// member returns the JSON of an object member, followed by a comma.
func member(name, value string) []byte {
	text, _ := event.EncodeJSON(value) // encoding a string cannot fail
	return append(append([]byte(`"`+name+`":`), text...), ',')
}
