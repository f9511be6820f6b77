package event

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key identifies one object. It has no API version, so that a move from v1beta1 to v1 does not
// change it. The queue, the tombstones and the checkpoint are indexed by Key.
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

// Compare orders keys by group, resource, namespace and name.
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

// PartitionKey returns a text that identifies an object, without its API version:
//
//	<cluster>/<group or core>/<resource>/<namespace or _>/<name>
//
// The text is the attribute partitionkey and the key of Kafka records. PartitionKey percent-encodes
// '/', '%' and the characters that a CloudEvents string must not hold: control characters,
// noncharacters and invalid UTF-8. Of all these, a Kubernetes name can hold only control characters
// and noncharacters. As in [Subject], ambiguous values are escaped as well: a group called "core"
// or beginning with '_', and a namespace called "_". The function is injective.
func PartitionKey(cluster string, k Key) string {
	var stack [256]byte // longer keys cost a second allocation
	b := appendText(stack[:0], cluster, true)
	b = appendGroupSegment(append(b, '/'), k.Group)
	b = appendText(append(b, '/'), k.Resource, true)
	switch k.Namespace {
	case "":
		b = append(b, "/_"...)
	case "_":
		b = append(b, "/%5F"...)
	default:
		b = appendText(append(b, '/'), k.Namespace, true)
	}
	b = appendText(append(b, '/'), k.Name, true)
	return string(b)
}

// ParsePartitionKey is the exact inverse of [PartitionKey]. Any other key is an error,
// including the key of a marker.
func ParsePartitionKey(s string) (cluster string, k Key, err error) {
	segments := strings.Split(s, "/")
	if len(segments) != 5 {
		return "", Key{}, fmt.Errorf("parse partition key %q: want five segments", s)
	}
	cluster = unescape(segments[0], '%')
	k = Key{Resource: unescape(segments[2], '%'), Name: unescape(segments[4], '%')}
	if segments[1] != coreToken {
		k.Group = unescape(segments[1], '%')
	}
	if segments[3] != clusterScopeToken {
		k.Namespace = unescape(segments[3], '%')
	}
	if PartitionKey(cluster, k) != s {
		return "", Key{}, fmt.Errorf("parse partition key %q: not in canonical form", s)
	}
	return cluster, k, nil
}

// MarkerPartitionKey returns the partition key of a resource's snapshot markers. No object has this
// key, because no group is encoded as "_control".
func MarkerPartitionKey(cluster string, r schema.GroupResource) string {
	return markerPartitionKey(cluster, snapshotToken, r)
}

// ResolvedPartitionKey returns the partition key of a resource's consistency points. No
// object has this key.
func ResolvedPartitionKey(cluster string, r schema.GroupResource) string {
	return markerPartitionKey(cluster, resolvedToken, r)
}

func markerPartitionKey(cluster, kind string, r schema.GroupResource) string {
	b := appendText(nil, cluster, true)
	b = append(b, "/"+controlToken+"/"+kind+"/"...)
	b = appendGroupSegment(b, r.Group)
	return string(appendText(append(b, '/'), r.Resource, true))
}

func appendGroupSegment(b []byte, group string) []byte {
	switch {
	case group == "":
		return append(b, coreToken...)
	case group == coreToken:
		return append(b, "%63ore"...)
	case group[0] == '_':
		return appendText(append(b, "%5F"...), group[1:], true)
	}
	return appendText(b, group, true)
}

// text returns s as a valid CloudEvents string (CloudEvents 1.0, section 3.1). It percent-encodes
// '%' and the characters that this section forbids, so that percent-decoding returns s. All other
// strings stay unchanged.
func text(s string) string {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			return string(appendText(nil, s, false))
		}
	}
	return s
}

// appendText appends text(s). If slash is set, it also percent-encodes '/'.
func appendText(b []byte, s string, slash bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); {
		size, plain := 1, false
		if c := s[i]; c < utf8.RuneSelf {
			plain = ' ' <= c && c <= '~' && c != '%' && !(slash && c == '/')
		} else {
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			plain = !isForbidden(r) && !(r == utf8.RuneError && size == 1)
		}
		for ; size > 0; size-- {
			if plain {
				b = append(b, s[i])
			} else {
				b = append(b, '%', hex[s[i]>>4], hex[s[i]&15])
			}
			i++
		}
	}
	return b
}

// isForbidden reports whether CloudEvents forbids r in a string. It forbids control characters and
// the noncharacters of Unicode.
func isForbidden(r rune) bool {
	return r < 0x20 || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe
}

// ParseMarkerPartitionKey is the exact inverse of [MarkerPartitionKey], [ResolvedPartitionKey],
// [WriterPartitionKey] and [ClaimPartitionKey]. For the first two, k has only a group and a
// resource. For the others, k is the zero value. Any other key is an error.
func ParseMarkerPartitionKey(s string) (cluster string, k Key, err error) {
	segments := strings.Split(s, "/")
	if len(segments) != 5 || segments[1] != controlToken {
		return "", Key{}, fmt.Errorf("parse partition key %q: not the key of a marker", s)
	}
	cluster = unescape(segments[0], '%')
	again := ""
	switch segments[2] {
	case snapshotToken, resolvedToken:
		k.Resource = unescape(segments[4], '%')
		if segments[3] != coreToken {
			k.Group = unescape(segments[3], '%')
		}
		again = markerPartitionKey(cluster, segments[2], k.GroupResource())
	case writerToken:
		if partition, err := strconv.Atoi(segments[4]); err == nil && segments[3] != "" {
			again = WriterPartitionKey(cluster, unescape(segments[3], '%'), partition)
		}
	case clusterToken:
		again = ClaimPartitionKey(cluster)
	}
	if again != s {
		return "", Key{}, fmt.Errorf("parse partition key %q: not in canonical form", s)
	}
	return cluster, k, nil
}
