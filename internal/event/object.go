package event

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is a Kubernetes object as it is cached and published: the metadata that a decision
// needs, and the whole object as JSON.
//
// It implements [metav1.ObjectMetaAccessor] and [runtime.Object], so client-go's indexers,
// namespace index and handlers accept it in place of an unstructured object. It is
// read-only once it is in an indexer.
type Object struct {
	APIVersion, Kind string
	Namespace, Name  string
	UID              types.UID
	ResourceVersion  string

	Body Body

	// Digest is the digest of the published content.
	Digest Digest

	// Unselected: the object exists, but the filter does not select it. It has no Body.
	Unselected bool

	// Shaped: a [Converter] of this process has redacted and projected Body. If not, it is
	// a state from the bus, in the form of an earlier configuration.
	Shaped bool

	// Written is when the API server wrote the object last, by its own clock and as far as
	// metadata.managedFields records it, in seconds of Unix time. It is 0 if unknown.
	Written uint32

	// References are the references to follow, nil if there are none.
	References []Reference
}

var (
	_ runtime.Object            = (*Object)(nil)
	_ metav1.ObjectMetaAccessor = (*Object)(nil)
)

// GetObjectMeta returns the metadata that client-go's caches use: name, namespace, UID and
// resourceVersion. Everything else is only in Body.
func (o *Object) GetObjectMeta() metav1.Object { return objectMeta{unknown, o} }

// objectMeta is allocated several times for each watch event, so it is as small as
// possible.
type objectMeta struct {
	metav1.Object // for all other methods
	of            *Object
}

// unknown is never changed, because objects in an indexer are read-only.
var unknown metav1.Object = &metav1.ObjectMeta{}

func (m objectMeta) GetNamespace() string       { return m.of.Namespace }
func (m objectMeta) GetName() string            { return m.of.Name }
func (m objectMeta) GetUID() types.UID          { return m.of.UID }
func (m objectMeta) GetResourceVersion() string { return m.of.ResourceVersion }

// GetObjectKind is part of [runtime.Object].
func (o *Object) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: o.APIVersion, Kind: o.Kind}
}

// DeepCopyObject is part of [runtime.Object]. The values that an Object refers to are
// immutable.
func (o *Object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}
