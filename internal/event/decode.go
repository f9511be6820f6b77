package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Decoder makes an [Object] of the JSON that an API server writes, without decoding it:
// it goes over the text once, for the metadata that a decision needs, and cuts out
// metadata.managedFields and the last-applied annotation. Decoded are only a Secret, so
// that its values can be hashed, and what a [Shape] wants to see. A Decoder is for one
// goroutine.
type Decoder struct {
	converter  *Converter
	resource   Resource
	apiVersion string
	packer     *Packer
	keeps      func(namespace string) bool
	shape      Shape

	kindMember, apiVersionMember []byte // for objects without them

	namespace string // the last one
	ids       []byte // scratch, as the next two
	cuts      []cut
	body      []byte
}

// Decoder makes a Decoder of the objects of r, whose bodies p compresses. It keeps the
// bodies of objects in those namespaces only for which keeps is true, "" being that of
// cluster-scoped objects; nil is for all. Of what shape does not select it keeps none.
func (c *Converter) Decoder(r Resource, p *Packer, keeps func(namespace string) bool, shape Shape) *Decoder {
	return &Decoder{
		converter: c, resource: r, apiVersion: c.intern(r.APIVersion()), packer: p, keeps: keeps, shape: shape,
		kindMember: member("kind", r.Kind), apiVersionMember: member("apiVersion", r.APIVersion()),
	}
}

// cut is a part of the text that is left out.
type cut struct{ from, to int }

// fields are parts of the text, nil where it has none. In the order of apiVersion, kind,
// namespace, name, uid and resourceVersion.
type fields struct {
	apiVersion, kind, namespace, name, uid, version []byte
}

// Decode makes an Object of a text.
func (d *Decoder) Decode(text []byte) (*Object, error) {
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

// Read makes an Object of the value that comes next. It gets apiVersion and kind of the
// resource where it has none, as the items of a list do. The text may be changed
// afterwards.
//
// An error wraps [jsonscan.ErrSyntax] if this is not JSON, or not a Kubernetes object: it
// has no name, a field of the metadata twice, or in another form. It never holds the
// object's content.
func (d *Decoder) Read(s *jsonscan.Scanner) (*Object, error) {
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
	if secret := d.resource.Group == "" && d.resource.Resource == "secrets"; secret || d.shape.decodes() {
		if err := d.decode(o, secret); err != nil {
			return nil, fmt.Errorf("decode an object of %s: %w", d.resource.GroupResource(), err)
		}
	}
	if !o.Unselected {
		o.Body = d.packer.pack(d.body)
	}
	return o, nil
}

// decode does what can be done only with the object decoded: it replaces the text of the
// body, unless that is to stay as it is.
func (d *Decoder) decode(o *Object, secret bool) error {
	content, err := tree(d.body)
	if err != nil {
		return err
	}
	if secret {
		d.converter.redact(o, content)
	}
	if d.shape.Select != nil && !d.shape.Select(content) {
		o.Unselected = true
		return nil
	}
	if d.shape.Project != nil {
		o.Cut = d.shape.Project(content)
		// Where its hashes do not outlive the process, a Secret goes by its version.
		if !secret || !d.converter.ours {
			if o.Digest, err = digestOf(content); err != nil {
				return errNotJSON
			}
		}
	}
	if secret || d.shape.Project != nil {
		if d.body, err = encode(content); err != nil {
			return errNotJSON
		}
	}
	return nil
}

// errNotJSON stands for errors that may quote a value.
var errNotJSON = errors.New("it has no JSON form")

// tree decodes an object, numbers as they are written.
func tree(text []byte) (map[string]any, error) {
	var content map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&content) != nil {
		return nil, errNotJSON
	}
	return content, nil
}

// metadata goes through an object's metadata.
func (d *Decoder) metadata(s *jsonscan.Scanner, f *fields) {
	s.Object()
	m := members{end: s.Position()}
	for s.Next() {
		d.member(&m, s)
		switch string(s.Key()) {
		case "name":
			readText(s, &f.name)
		case "namespace":
			readText(s, &f.namespace)
		case "uid":
			readText(s, &f.uid)
		case "resourceVersion":
			readText(s, &f.version)
		case "managedFields":
			s.Skip()
			d.drop(&m, s)
			continue
		case "annotations":
			if !s.IsObject() {
				s.Skip()
			} else if d.annotations(s) {
				d.drop(&m, s)
				continue
			}
		default:
			s.Skip()
		}
		m.keep(s)
	}
	d.end(&m, s)
}

// annotations tells whether nothing of them is left.
func (d *Decoder) annotations(s *jsonscan.Scanner) bool {
	before := len(d.cuts)
	s.Object()
	m := members{end: s.Position()}
	for s.Next() {
		d.member(&m, s)
		dropped := string(s.Key()) == lastApplied
		s.Skip()
		if dropped {
			d.drop(&m, s)
		} else {
			m.keep(s)
		}
	}
	d.end(&m, s)
	if m.dropped && !m.kept {
		d.cuts = d.cuts[:before]
		return true
	}
	return false
}

// readText reads a string, or null, that is there once only.
func readText(s *jsonscan.Scanner, to *[]byte) {
	if *to != nil || !s.Null() {
		*to = once(s, *to)
	}
}

// once reads a string that has not been there before.
func once(s *jsonscan.Scanner, before []byte) []byte {
	if before != nil {
		s.Fail()
	}
	return s.Text()
}

// members is how far an object has been gone through of which some members are dropped.
// A member that is dropped takes the comma before it with it; if none before it is kept,
// the one after it.
type members struct {
	end           int // of the last one that is kept; where there is none, of the bracket
	kept, dropped bool
}

// member is called when the next one has begun.
func (d *Decoder) member(m *members, s *jsonscan.Scanner) {
	if m.dropped && !m.kept {
		d.cut(m.end, s.KeyPosition())
	}
}

func (d *Decoder) drop(m *members, s *jsonscan.Scanner) {
	m.dropped = true
	if m.kept {
		d.cut(m.end, s.Position())
	}
}

func (m *members) keep(s *jsonscan.Scanner) { m.kept, m.end = true, s.Position() }

// end is called after the closing bracket.
func (d *Decoder) end(m *members, s *jsonscan.Scanner) {
	if m.dropped && !m.kept {
		d.cut(m.end, s.Position()-1)
	}
}

// cut notes a part to leave out, or that the last one goes on.
func (d *Decoder) cut(from, to int) {
	if n := len(d.cuts); n > 0 && d.cuts[n-1].from == from {
		d.cuts[n-1].to = to
		return
	}
	d.cuts = append(d.cuts, cut{from, to})
}

// object makes the Object of the fields. Name, uid and resourceVersion share one string.
func (d *Decoder) object(f fields) *Object {
	o := &Object{APIVersion: d.apiVersion, Kind: d.resource.Kind}
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
	return o
}

// join makes the text of the body: all that is not cut out, and what is missing. The kind
// comes first, as in what an API server writes of an object that is not an item.
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

// member is the text of a member of an object, with a comma after it.
func member(name, value string) []byte {
	text, _ := encode(value) // a string cannot fail
	return append(append([]byte(`"`+name+`":`), text...), ',')
}
