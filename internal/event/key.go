package event

import (
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key names one object by its identity: the version it is served in is left
// out, so that a move from v1beta1 to v1 is not another object. It is comparable
// and is what the queue, the tombstones and the checkpoint are indexed by.
type Key struct {
	Group     string // "" for the core group
	Resource  string // the plural, as in discovery: "deployments"
	Namespace string // "" if the resource is cluster-scoped
	Name      string
}

// GroupResource is the type part of the key.
func (k Key) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// String is for logs and errors: "deployments.apps default/web".
func (k Key) String() string {
	gr := k.GroupResource().String()
	if k.Namespace == "" {
		return gr + " " + k.Name
	}
	return gr + " " + k.Namespace + "/" + k.Name
}

// Resource is a type of object as the cluster's discovery describes it.
type Resource struct {
	Group      string
	Version    string
	Resource   string // the plural
	Kind       string
	Namespaced bool
}

// GroupResource identifies the type across its versions.
func (r Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// GroupVersionResource is what a dynamic client asks for.
func (r Resource) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// APIVersion is the value of an object's apiVersion field: "v1", "apps/v1".
func (r Resource) APIVersion() string {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
}

// Key is the key of the object of this type with that namespace and name.
func (r Resource) Key(namespace, name string) Key {
	return Key{Group: r.Group, Resource: r.Resource, Namespace: namespace, Name: name}
}

// Path is the API path of the object that k names, in r's version, with the
// real plural: "/apis/apps/v1/namespaces/default/deployments/web". It is the
// CloudEvents subject. Each segment is percent-encoded where it must be, so that
// the path is a valid URI reference whatever the object is called; "system:node"
// stays as it is. Without a name it is the path of the collection; a version that
// nobody knows any more is left out.
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
