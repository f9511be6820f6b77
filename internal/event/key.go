package event

import (
	"cmp"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key identifies one object. It has no API version, so a move from v1beta1 to v1 does not change
// the key. The queue, the tombstones, and the checkpoint are indexed by Key.
type Key struct {
	Group     string // "" for the core group
	Resource  string // plural, as in discovery: "deployments"
	Namespace string // "" if the resource is cluster-scoped
	Name      string
}

// GroupResource returns the type of the object.
func (k Key) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// String returns a text for logs and errors: "deployments.apps default/web".
func (k Key) String() string {
	gr := k.GroupResource().String()
	if k.Namespace == "" {
		return gr + " " + k.Name
	}
	return gr + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by group, resource, namespace, and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(
		strings.Compare(k.Group, other.Group), strings.Compare(k.Resource, other.Resource),
		strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name),
	)
}

// Resource is a type of object, as discovery describes it.
type Resource struct {
	Group      string
	Version    string
	Resource   string // plural
	Kind       string
	Namespaced bool
}

// GroupResource returns the type without its version.
func (r Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// GroupVersionResource returns the type for a dynamic client.
func (r Resource) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// APIVersion returns the value of the field apiVersion: "v1", "apps/v1".
func (r Resource) APIVersion() string {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
}

// Key returns the key of an object of this type.
func (r Resource) Key(namespace, name string) Key {
	return Key{Group: r.Group, Resource: r.Resource, Namespace: namespace, Name: name}
}

// Path returns the API path of the object that k identifies, in r's version and with the plural
// from discovery: "/apis/apps/v1/namespaces/default/deployments/web". The path is the CloudEvents
// subject. Path percent-encodes each segment if necessary, so that the result is a valid URI
// reference. For example, "system:node" stays unchanged. If k has no name, the result is the path
// of the collection. Path omits an unknown version.
func (r Resource) Path(k Key) string {
	var stack [256]byte // longer paths cost a second allocation
	b := append(stack[:0], "/api"...)
	if r.Group != "" {
		b = appendPathSegment(append(b, 's'), r.Group)
	}
	if r.Version != "" {
		b = appendPathSegment(b, r.Version)
	}
	if k.Namespace != "" {
		b = appendPathSegment(append(b, "/namespaces"...), k.Namespace)
	}
	b = appendPathSegment(b, k.Resource)
	if k.Name != "" {
		b = appendPathSegment(b, k.Name)
	}
	return string(b)
}

func appendPathSegment(b []byte, segment string) []byte {
	return append(append(b, '/'), url.PathEscape(segment)...)
}

// Reference is a reference from a field of one object to another object.
type Reference struct {
	Group, Kind     string
	Namespace, Name string // Namespace is "" if the field has none
	UID             string // "" if the field has none
	Controller      bool   // the reference is to the object's controller
}

// GroupKind returns the referenced type, without a version.
func (r Reference) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// Owner is the controller at the top of a chain of owners, such as the Deployment of a pod.
type Owner struct{ Kind, Name string }
