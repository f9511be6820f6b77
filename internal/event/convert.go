package event

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Converter makes an [Object] of what a dynamic client decoded. It may be used
// by several goroutines at once.
type Converter struct {
	key   []byte
	names sync.Map // string to the same string, for the few values that every object repeats
}

// NewConverter makes a Converter that hashes the values of Secrets with the given
// key. Replicas and restarts need the same key, or each shows every value as
// changed. Without a key it makes one up, for its own lifetime: a hash without a
// key would let anyone who reads the bus try passwords.
func NewConverter(redactionKey []byte) *Converter {
	c := &Converter{key: bytes.Clone(redactionKey)}
	if len(c.key) == 0 {
		c.key = make([]byte, 32)
		rand.Read(c.key) // never fails
	}
	return c
}

// FromUnstructured converts u, an object of type r: without
// metadata.managedFields and the last-applied annotation, with the values of a
// Secret hashed, and with apiVersion and kind of r where u has none, as items of a
// list do not.
//
// It never changes u, so u may be shared, and a transform function of an informer,
// which owns its object, may call it too. The result keeps nothing of u alive. An
// error never holds the object's content.
func (c *Converter) FromUnstructured(r Resource, u *unstructured.Unstructured) (*Object, error) {
	if u == nil || u.GetName() == "" {
		return nil, fmt.Errorf("convert an object of %s: it has no name", r.GroupResource())
	}
	o := &Object{
		APIVersion:      u.GetAPIVersion(),
		Kind:            u.GetKind(),
		Namespace:       strings.Clone(u.GetNamespace()),
		Name:            strings.Clone(u.GetName()),
		UID:             types.UID(strings.Clone(string(u.GetUID()))),
		ResourceVersion: strings.Clone(u.GetResourceVersion()),
	}
	if o.APIVersion == "" {
		o.APIVersion = r.APIVersion()
	}
	if o.Kind == "" {
		o.Kind = r.Kind
	}
	o.APIVersion, o.Kind = c.intern(o.APIVersion), c.intern(o.Kind)

	content := maps.Clone(u.Object)
	content["apiVersion"], content["kind"] = o.APIVersion, o.Kind
	metadata := strip(u.Object["metadata"].(map[string]any)) // is one, as it holds a name
	content["metadata"] = metadata
	if r.Group == "" && r.Resource == "secrets" {
		c.redact(o, content, metadata)
	}
	body, err := encode(content)
	if err != nil {
		err = errors.New("it has no JSON form") // err may quote a value
		return nil, fmt.Errorf("convert %s: %w", r.Key(o.Namespace, o.Name), err)
	}
	o.Body = body
	return o, nil
}

// strip gives a copy of metadata without what repeats the object's own content.
func strip(metadata map[string]any) map[string]any {
	metadata = maps.Clone(metadata)
	delete(metadata, "managedFields")
	annotations, _ := metadata["annotations"].(map[string]any)
	if _, ok := annotations[lastApplied]; !ok {
		return metadata
	}
	if len(annotations) == 1 {
		delete(metadata, "annotations")
		return metadata
	}
	annotations = maps.Clone(annotations)
	delete(annotations, lastApplied)
	metadata["annotations"] = annotations
	return metadata
}

// intern gives one string for all that are equal to s. It is meant for the names
// of types, of which a cluster has hundreds.
func (c *Converter) intern(s string) string {
	if known, ok := c.names.Load(s); ok {
		return known.(string)
	}
	s = strings.Clone(s)
	known, _ := c.names.LoadOrStore(s, s)
	return known.(string)
}
